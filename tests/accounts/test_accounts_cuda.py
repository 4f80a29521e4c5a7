"""On a GPU: the same numbers as on the CPU, no synchronisation, and capture in a CUDA graph."""

import pytest
import torch

import mental_accounts as ma

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

T_VALUES = [20, 300]
DTYPES = [torch.float32, torch.float64]


def calls(device: str, dtype: torch.dtype, T: int) -> dict[str, object]:
    """Every hot-path function on inputs that already lie on the device."""
    generator = torch.Generator().manual_seed(3)
    actions = (torch.rand(4, T, 6, generator=generator, dtype=dtype) * 2 - 1).to(device)
    rewards = torch.randn(4, T, generator=generator, dtype=dtype).to(device)
    foregone = torch.randn(4, T, 27, generator=generator, dtype=dtype).to(device)
    codes = torch.randint(27, (4, T), generator=generator).to(device)
    slots = torch.randint(27, (4, T, 2), generator=generator).to(device)
    mask = (torch.arange(T) >= 5).expand(4, T).contiguous().to(device)
    active = torch.tensor([True, False, True, True]).to(device)
    start = torch.randn(4, 27, generator=generator, dtype=dtype).to(device)
    columns = (torch.arange(2 * T) % 2 == 1).to(device)
    rule, canonical = ma.EWA(), ma.CanonicalEWA(0.1, 0.2, 0.5)
    ledger = rule.ledger(27, (4,), device=device, dtype=dtype)
    canonical_ledger = canonical.ledger(27, (4,), device=device, dtype=dtype)
    beta = ma.BiasScale(0.05, learned=True, layers=2, heads=3).to(device)
    books = [
        ma.GridCodebook(6, 3),
        ma.GridCodebook(6, 3, 27),
        ma.GridCodebook(6, 30, 27),  # no table
        ma.ProductCodebook(6, 2, 3),
        ma.KMeansCodebook(torch.rand(27, 6, generator=generator) * 2 - 1),
    ]
    books = [book.to(device) for book in books]
    transform = ma.RewardTransform("standardised", 0.3, 2.0, clip=1.0).to(device)

    def post() -> torch.Tensor:
        ledger.reset(~active)
        return ledger.post(codes[:, 0], rewards[:, 0], active=active)

    def post_canonical() -> torch.Tensor:
        canonical_ledger.reset(~active)
        return canonical_ledger.post(codes[:, 0], rewards[:, 0], foregone=foregone[:, 0])

    found = {f"route {i}": lambda book=book: book.route(actions) for i, book in enumerate(books)}
    return found | {
        "trace": lambda: rule.trace(codes, rewards),
        "trace with codes": lambda: rule.trace(codes, rewards, num_codes=27, start=start, mask=mask),
        "trace slots": lambda: rule.trace(slots, rewards),
        "trace canonical": lambda: canonical.trace(codes, rewards, foregone=foregone, start=start),
        "closed form": lambda: rule.closed_form(codes, rewards, 27, start=start, mask=mask),
        "read now": lambda: rule.read_now(codes, rewards),
        "post": post,
        "post canonical": post_canonical,
        "transform": lambda: transform(rewards),
        "column bias": lambda: ma.column_bias(rewards, beta(), clip=1.0).detach(),
        "column bias, selector": lambda: ma.column_bias(rewards, 0.05, columns=columns),
        "now bias": lambda: ma.now_bias(rule.read_now(codes, rewards), 0.05),
        "drift": lambda: ma.attention_drift(rewards, rewards),
    }


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("T", T_VALUES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("autocast", [False, True])
def test_same_numbers_without_synchronisation(dtype: torch.dtype, T: int, autocast: bool) -> None:
    on_cpu, on_gpu = calls("cpu", dtype, T), calls("cuda", dtype, T)
    for name, call in on_gpu.items():
        call()  # the first call may set up workspaces
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
                got = call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        on_cpu[name]()
        torch.testing.assert_close(got.cpu(), on_cpu[name](), msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("T", T_VALUES)
def test_capture_in_a_cuda_graph(T: int) -> None:
    for name, call in calls("cuda", torch.float32, T).items():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call()
        graph.replay()
        torch.cuda.synchronize()
        expected = calls("cpu", torch.float32, T)[name]
        expected()  # a ledger has been posted to twice by now: once warming up, once by the replay
        torch.testing.assert_close(captured.cpu(), expected(), msg=lambda text, name=name: f"{name}: {text}")
