"""The forms of the accounts that are compared on the tasks with a hidden context, as `compare` writes them."""

PAPERS = {"model.accounts.ledger_input": "none", "model.accounts.beta": 0.05, "model.accounts.phi": 0.05}
"""Set by all studies, so that plain `ewa-vq-odt` is the paper's method. (They began when preset `hidden` was ewa-vq-odt
that read its ledger, with β = 0. That is called ledger-odt now; the forms keep the names of the recorded runs.)"""
HEAD = "beta_learned=True,beta_per=head"
LEDGER = "ledger_input=state,beta=0"
SOFT = f"{LEDGER},soft_codes=3"
TOKEN = "beta_learned=True,beta_per=token"
LONG = "odt:context_length=40,eval_context_length=40"
MAIN = {
    "odt": "ODT, K=5: no accounts",
    "ewa-vq-odt": "the paper's bias, β = 0.05",
    f"ewa-vq-odt:{HEAD}": "β learned per head",
    f"ewa-vq-odt:{HEAD},read=now": "the same, accounts read `now`",
    f"ewa-vq-odt:{TOKEN}": "β by a map of the token",
    f"ewa-vq-odt:{LEDGER}": "the ledger as input, no bias",
    f"ewa-vq-odt:{SOFT}": "the ledger, soft routing to 3 codes",
    LONG: "ODT, K=40: no accounts",
}
OPTIONS = {
    f"ewa-vq-odt:{HEAD},account_scope=window": "β per head, accounts begin anew with each window",
    f"ewa-vq-odt:{TOKEN}": "β by a map of the token",
    f"ewa-vq-odt:{HEAD},normalised=True": "β per head, attractions normalised",
    f"ewa-vq-odt:{HEAD},soft_codes=3": "β per head, soft routing to 3 codes",
    f"ewa-vq-odt:{HEAD},state_codes=4": "β per head, accounts of 4 kinds of state",
    f"ewa-vq-odt:{HEAD},codebook=hierarchical,num_codes=None": "β per head, coarse and fine codes",
    f"ewa-vq-odt:{HEAD},credit=advantage": "β per head, credit above a baseline",
    "ewa-vq-odt:ledger_input=token,beta=0": "the ledger as a token of its own",
    f"ewa-vq-odt:ledger_input=state,{HEAD}": "the ledger, and β per head",
    f"ewa-vq-odt:{LEDGER},normalised=True": "the ledger, normalised",
    f"ewa-vq-odt:{SOFT}": "the ledger, soft routing to 3 codes",
    f"ewa-vq-odt:{LEDGER},state_codes=4": "the ledger, accounts of 4 kinds of state",
    f"ewa-vq-odt:{LEDGER},codebook=hierarchical,num_codes=None": "the ledger, coarse and fine codes",
    f"ewa-vq-odt:{LEDGER},credit=advantage": "the ledger, credit above a baseline",
    f"ewa-vq-odt:{LEDGER},rule=canonical": "the ledger by the canonical rule",
}
LONG_ON_THE_ROBOT = "odt:context_length=20,eval_context_length=20"
SIGNS = "bins=2,num_codes=64"
"""On the robot: a code for each combination of signs of six torques."""


def with_signs(form: str) -> str:
    """The form as run on the robot. A hierarchical codebook has the signs as its coarse codes."""
    method, _, changes = form.partition(":")
    return form if "hierarchical" in changes else f"{method}:{SIGNS}{',' * bool(changes)}{changes}"


ROBOTS = PAPERS | {"model.hidden": 128, "model.accounts.reward_transform": "standardised"}
"""Settings of the robot's studies that affect the time of an update."""
BROKEN = {
    "odt": "ODT, K=5: no accounts",
    f"ewa-vq-odt:{SIGNS}": "the paper's bias, 64 codes",
    f"ewa-vq-odt:{SIGNS},{HEAD}": "β learned per head",
    f"ewa-vq-odt:{SIGNS},{LEDGER}": "the ledger as input, no bias",
    f"ewa-vq-odt:{SIGNS},{LEDGER},credit=advantage": "the ledger, credit above a baseline",
    LONG_ON_THE_ROBOT: "ODT, K=20: no accounts",
}
BROKEN_OPTIONS = {with_signs(form): words for form, words in OPTIONS.items()} | {
    f"ewa-vq-odt:{SIGNS},{HEAD},read=now": "β per head, accounts read `now`",
    f"ewa-vq-odt:{SIGNS},{LEDGER},credit=advantage,state_codes=4": (
        "the ledger, credit above a baseline, accounts of 4 kinds of state"
    ),
}
OBSERVED = {
    "odt": "ODT, K=20: no accounts",
    f"ewa-vq-odt:{HEAD}": "β learned per head",
    f"ewa-vq-odt:{LEDGER}": "the ledger as input, no bias",
    f"ewa-vq-odt:{HEAD},read=now": "β per head, accounts read `now`",
    **OPTIONS,
}
"""On the paper's tasks."""
