"""The programs that the stacks of tests start."""

from devstack.harness.stack import StackPrograms

# The API with cheap password hashes, and the sandbox with providers that fail on request.
TEST_PROGRAMS = StackPrograms(api="tests.support.probe.serve", sandbox="tests.support.sandbox")
