import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.account_kinds import BOX_CODEBOOKS
from mental_accounts.account_options import AccountsConfig
from mental_accounts.accounts import CODEBOOKS, codebook_from_spec, grids, nearest

from . import slow_accounts

EXACT_BINS = st.sampled_from([2, 3, 5])  # grid points and borders are dyadic, so that brute force has exact ties


def random_and_border_actions(dim: int, bins: int, n: int = 8) -> torch.Tensor:
    """Random actions, actions on borders and grid points, one step beside them, and some outside of [-1, 1]."""
    special = torch.arange(2 * bins - 1, dtype=torch.float64) / (bins - 1) - 1
    special = torch.cat([special, special.nextafter(torch.tensor(2.0)), special.nextafter(torch.tensor(-2.0))])
    on_borders = special[torch.randint(len(special), (n, dim))]
    return torch.cat([torch.rand(n, dim, dtype=torch.float64) * 2.4 - 1.2, on_borders])


@given(dim=st.integers(1, 3), bins=EXACT_BINS, seed=st.integers(0, 99))
def test_full_grid_routes_to_the_nearest_center(dim: int, bins: int, seed: int) -> None:
    torch.manual_seed(seed)
    book = ma.GridCodebook(dim=dim, bins=bins)
    actions = random_and_border_actions(dim, bins)
    centers = slow_accounts.grid_centers(dim, bins)
    assert book.centers.tolist() == [list(center) for center in centers]
    expected = [slow_accounts.nearest(action, centers) for action in actions.clamp(-1, 1).tolist()]
    assert book.route(actions).tolist() == expected


@given(dim=st.integers(1, 4), bins=st.integers(2, 8), data=st.data())
def test_subset_routes_a_cell_to_the_code_nearest_to_its_grid_point(dim: int, bins: int, data: st.DataObject) -> None:
    num_codes = data.draw(st.integers(1, bins**dim))
    book = ma.GridCodebook(dim=dim, bins=bins, num_codes=num_codes)
    cells = ma.GridCodebook(dim=dim, bins=bins)
    actions = torch.rand(30, dim) * 2 - 1
    digits = [[round((x + 1) / 2 * (bins - 1)) for x in cells.centers[cell].tolist()] for cell in cells.route(actions)]
    codes = [[round((x + 1) / 2 * (bins - 1)) for x in center] for center in book.centers.tolist()]
    assert book.route(actions).tolist() == [slow_accounts.nearest(point, codes) for point in digits]


def test_the_papers_subset_sees_the_first_three_dimensions_only() -> None:
    book = ma.GridCodebook(dim=6, bins=3, num_codes=27)
    actions = torch.rand(500, 6) * 2 - 1
    other = actions.clone()
    other[:, 3:] = torch.rand(500, 3) * 2 - 1
    assert torch.equal(book.route(actions), book.route(other))
    # Here the subset is a full grid of three dimensions, so that the table agrees with the nearest code itself.
    nearest = torch.cdist(actions.double(), book.centers.double()).argmin(dim=1)
    assert torch.equal(book.route(actions), nearest)


@pytest.mark.parametrize(
    ("dim", "requested", "bins", "codes"),
    [
        (1, 1, 2, 1),
        (1, 100, 8, 100),
        (2, 27, 5, 27),
        (3, 27, 3, 27),
        (3, 64, 4, 64),  # floats give 3: int(64 ** (1/3))
        (3, 63, 3, 63),
        (5, 27, 2, 27),
        (6, 27, 2, 64),
        (6, 64, 2, 64),
        (6, 729, 3, 729),
        (8, 27, 2, 128),
        (17, 27, 2, 128),
    ],
)
def test_algorithm2_chooses_bins_and_codes(dim: int, requested: int, bins: int, codes: int) -> None:
    book = ma.GridCodebook.algorithm2(dim=dim, num_codes=requested)
    assert (book.bins, book.num_codes) == (bins, codes)
    assert book.centers.shape == (codes, dim)


def test_algorithm2_table_against_the_literal_algorithm() -> None:
    for dim, requested in [(2, 27), (5, 27), (6, 27), (7, 27), (8, 30)]:
        book = ma.GridCodebook.algorithm2(dim=dim, num_codes=requested)
        b, N = book.bins, book.num_codes
        codes = [[(i // b**d) % b for d in range(dim)] for i in range(N)]
        actions = torch.rand(20, dim) * 2 - 1
        cells = [[round((x + 1) / 2 * (b - 1)) for x in action] for action in actions.tolist()]
        assert book.route(actions).tolist() == [slow_accounts.nearest(cell, codes) for cell in cells]


def test_huge_full_grid_routes_by_arithmetic() -> None:
    book = ma.GridCodebook(dim=17, bins=3)
    assert book.num_codes == 3**17
    assert book.centers is None
    actions = torch.rand(50, 17) * 2 - 1
    codes = book.route(actions)
    expected = [sum(round(x + 1) * 3**d for d, x in enumerate(action)) for action in actions.tolist()]
    assert codes.tolist() == expected
    assert (book.center_of(codes) - actions).abs().max() <= 0.5 + 1e-6


def test_huge_subset_searches_with_bounded_memory_and_agrees_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table = ma.GridCodebook(dim=7, bins=3, num_codes=50)
    actions = torch.rand(2_000, 7) * 2 - 1
    monkeypatch.setattr(grids, "TABLE_CELLS", 1_000)
    monkeypatch.setattr(nearest, "SEARCH_ELEMENTS", 1_000)  # 20 actions at a time
    without = ma.GridCodebook(dim=7, bins=3, num_codes=50)
    assert without._table is None
    assert torch.equal(without.route(actions), with_table.route(actions))
    monkeypatch.undo()
    huge = ma.GridCodebook(dim=20, bins=3, num_codes=27)
    prefix = ma.GridCodebook(dim=3, bins=3)
    wide = torch.rand(300, 20) * 2 - 1
    assert torch.equal(huge.route(wide), prefix.route(wide[:, :3]))


def test_tables_are_built_once_and_shared() -> None:
    one, two = (ma.GridCodebook(dim=6, bins=3, num_codes=27) for _ in range(2))
    assert one._table.data_ptr() == two._table.data_ptr()


@given(dim=st.integers(1, 6), data=st.data())
def test_product_routes_each_group_by_itself(dim: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, dim))
    book = ma.ProductCodebook(dim=dim, groups=groups, bins=3)
    actions = torch.rand(5, 4, dim) * 2 - 1
    codes = book.route(actions)
    assert codes.shape == (5, 4, groups)
    assert int(codes.max()) < book.num_codes
    quantised = book.centers[codes].sum(dim=-2)  # the centres of an action's codes add up
    assert torch.equal(quantised, actions.round())
    assert len(torch.unique(codes[..., 0])) <= 3 ** -(-dim // groups)


def test_kmeans_finds_clusters_and_routes_to_the_nearest() -> None:
    true = torch.tensor([[-0.8, -0.8], [0.8, -0.5], [0.0, 0.7]])
    labels = torch.arange(3).repeat(100)
    actions = true[labels] + 0.02 * torch.randn(300, 2)
    book = ma.KMeansCodebook.fit(actions, num_codes=3, seed=1)
    assert torch.cdist(true, book.centers).min(dim=1).values.max() < 0.02
    assert torch.equal(book.route(actions), torch.cdist(actions, book.centers).argmin(dim=1))
    again = ma.KMeansCodebook.fit(actions, num_codes=3, seed=1)
    assert torch.equal(book.centers, again.centers)


def test_kmeans_with_as_many_codes_as_actions_and_with_too_many() -> None:
    actions = torch.tensor([[0.0], [0.5], [0.5], [1.0]])
    book = ma.KMeansCodebook.fit(actions, num_codes=3)
    assert sorted(book.centers.flatten().tolist()) == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="at most the number of distinct actions, 3, got 4"):
        ma.KMeansCodebook.fit(actions, num_codes=4)


def test_discrete_takes_numbers_and_one_hot() -> None:
    book = ma.DiscreteCodebook(n=4)
    numbers = torch.tensor([[0, 3], [2, 1]])
    assert torch.equal(book.route(numbers), numbers)
    assert torch.equal(book.route(torch.nn.functional.one_hot(numbers, 4).float()), numbers)
    assert torch.equal(book.route(book.centers), torch.arange(4))


def test_configurations_know_every_codebook() -> None:
    assert [*BOX_CODEBOOKS, "discrete", "values"] == list(CODEBOOKS)
    for name, kind in BOX_CODEBOOKS.items():
        assert CODEBOOKS[name].kind == name
        book = CODEBOOKS[name].from_options(3, AccountsConfig(codebook=name))
        assert bool(book.code_shape) == kind.has_groups
        if kind.needs_num_codes:
            with pytest.raises(ValueError, match=f"num_codes must be given for codebook '{name}', got None"):
                AccountsConfig(codebook=name, num_codes=None)
        else:
            assert CODEBOOKS[name].from_options(3, AccountsConfig(codebook=name, num_codes=None)).num_codes > 0
        if kind.needs_coarse_bins:
            with pytest.raises(ValueError, match="coarse_bins must be below bins = 3, got 3"):
                AccountsConfig(codebook=name, coarse_bins=3)
        else:
            assert AccountsConfig(codebook=name, coarse_bins=3).coarse_bins == 3
        if kind.has_groups:
            with pytest.raises(ValueError, match="soft_codes must be 1"):
                AccountsConfig(codebook=name, soft_codes=2)


BOOKS = {
    "grid": lambda: ma.GridCodebook(3, 3),
    "subset": lambda: ma.GridCodebook(4, 3, 20),
    "algorithm2": lambda: ma.GridCodebook.algorithm2(6, 27),
    "duplicates": lambda: ma.GridCodebook.algorithm2(2, 27),
    "product": lambda: ma.ProductCodebook(5, 2, 3),
    "kmeans": lambda: ma.KMeansCodebook(torch.rand(7, 3) * 2 - 1),
    "discrete": lambda: ma.DiscreteCodebook(5),
}


@pytest.mark.parametrize("name", BOOKS)
def test_state_dict_spec_device_and_casting(name: str, device: str) -> None:
    book = BOOKS[name]()
    actions = torch.rand(200, book.dim) * 2 - 1
    codes = book.route(actions)
    twin = codebook_from_spec(book.spec())
    twin.load_state_dict(book.state_dict())
    moved = twin.to(device).to(torch.bfloat16)  # a model may be cast; the cells' borders stay where they were
    assert moved.centers.dtype == torch.float32
    assert torch.equal(moved.route(actions.to(device)).cpu(), codes)
    assert torch.equal(book.route(actions.view(20, 10, -1)).flatten(0, 1), codes)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(moved.route(actions.to(device)).cpu(), codes)


def test_routing_under_low_precision_actions() -> None:
    book = ma.GridCodebook(2, 5)
    actions = (torch.rand(100, 2) * 2 - 1).bfloat16()
    assert torch.equal(book.route(actions), book.route(actions.float()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["grid", "subset", "product", "kmeans"])
def test_bad_actions_are_named(name: str, bad: float) -> None:
    book = BOOKS[name]()
    actions = torch.zeros(4, 3, book.dim)
    actions[2, 1, book.dim - 1] = bad
    with pytest.raises(ValueError, match=rf"actions must be finite, but actions\[2, 1, {book.dim - 1}\] is {bad}"):
        book.route(actions)


def test_bad_codebooks_and_shapes_say_what_was_expected() -> None:
    cases = [
        (lambda: ma.GridCodebook(dim=3, bins=1), ValueError, "bins must be at least 2, got 1"),
        (lambda: ma.GridCodebook(dim=0), ValueError, "dim must be at least 1, got 0"),
        (lambda: ma.GridCodebook(dim=2.0), TypeError, "dim must be a whole number, got 2.0"),
        (lambda: ma.GridCodebook(dim=2, bins=3, num_codes=10), ValueError, "at most bins.*9 cells, got 10"),
        (lambda: ma.GridCodebook(dim=60, bins=3), ValueError, "ProductCodebook"),
        (lambda: ma.GridCodebook.algorithm2(dim=3, num_codes=0), ValueError, "num_codes must be at least 1"),
        (lambda: ma.ProductCodebook(dim=2, groups=3), ValueError, "groups must be at most dim = 2, got 3"),
        (lambda: ma.KMeansCodebook(torch.zeros(3)), ValueError, r"\(num_codes, dim\)"),
        (lambda: ma.KMeansCodebook.fit(torch.zeros(3), 2), ValueError, r"\(\.\.\., dim\)"),
        (lambda: ma.DiscreteCodebook(n=0), ValueError, "n must be at least 1"),
        (lambda: ma.DiscreteCodebook(n=3).route(torch.tensor([0, 3])), ValueError, r"codes\[1\] is 3"),
        (lambda: ma.DiscreteCodebook(n=3).route(torch.tensor([-1])), ValueError, r"codes\[0\] is -1"),
        (lambda: ma.GridCodebook(dim=3).route(torch.zeros(5, 2)), ValueError, r"shape \(\.\.\., 3\), got \(5, 2\)"),
        (lambda: ma.GridCodebook(dim=3).route(torch.zeros(5, 3, dtype=torch.int64)), TypeError, "got torch.int64"),
        (lambda: ma.GridCodebook(dim=3).route([0.0, 0.0, 0.0]), TypeError, "got list"),
        (lambda: codebook_from_spec({"kind": "hexagons"}), ValueError, "hexagons"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
