"""The roles that a bearer token, or a person signed in by OIDC, may have."""

from typing import Final

# operator: everything. officer: decides on cases, and reads. auditor: reads.
OPERATOR: Final = "operator"
ROLES: Final = (OPERATOR, "officer", "auditor")
DECIDING: Final = (OPERATOR, "officer")
SCOPES: Final = (*ROLES, "agent")  # agent: the protocols of other machines, and nothing else
