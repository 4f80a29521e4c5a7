from tests.learning.conftest import aim  # noqa: F401
