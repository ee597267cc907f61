"""Measure the check of a message's permission: `python -m perf.permissions` prints nanoseconds a check."""

from gnats.core.auth.permission_cache import Verdicts
from gnats.core.auth.permissions import compile_permissions
from gnats.options.values.auth import Permissions, SubjectPermission

ENTRIES = 100
CHECKS = 2_000_000


def main() -> None:
    """Measure subjects that repeat and subjects that never do, with as many allowed as denied entries."""
    allow = tuple(f"service.{n}.*.updates.>" for n in range(ENTRIES))
    deny = tuple(f"service.{n}.secret.>" for n in range(ENTRIES))
    permissions = compile_permissions(Permissions(publish=SubjectPermission(allow, deny)))
    for count in (1, 10, 100, 1000, 10_000):
        subjects = [b"service.%d.eu.updates.%d" % (n % ENTRIES, n) for n in range(count)]
        verdicts = Verdicts()
        verdicts.measure(permissions, subjects, 1)
        ns = min(verdicts.measure(permissions, subjects, CHECKS // count) for _ in range(5))
        print(f"{count:6} subjects again and again: {ns:6.1f} ns")
    subjects = [b"service.%d.eu.updates.x%d" % (n % ENTRIES, n) for n in range(CHECKS // 10)]
    ns = min(Verdicts().measure(permissions, subjects, 1) for _ in range(5))
    print(f"{'':6} subjects never seen before: {ns:5.1f} ns")


if __name__ == "__main__":
    main()
