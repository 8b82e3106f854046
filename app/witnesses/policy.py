"""The witnesses that this installation asks: LETHE_WITNESS_POLICY."""

from pathlib import Path
from urllib.parse import urlsplit

from app.settings import Settings, SettingsError
from lethe.log.log_keys import LogKeys
from lethe.log.policy import MAX_POLICY, NONE, Policy, PolicyError, parse_policy


def load_policy(settings: Settings, log: LogKeys) -> Policy | None:
    """Return the policy, None if none is set.

    Raises:
        SettingsError: The file is missing or no policy, names no quorum or another log, or a
            witness has no http(s) URL to be asked at.
    """
    if not settings.witness_policy:
        return None
    try:
        with Path(settings.witness_policy).open("rb") as file:
            policy = parse_policy(file.read(MAX_POLICY + 1))
    except OSError as error:
        raise SettingsError(
            f"LETHE_WITNESS_POLICY: the file cannot be read: {error.strerror}"
        ) from None
    except PolicyError as error:
        raise SettingsError(f"LETHE_WITNESS_POLICY: {error.detail}") from None
    if policy.quorum == NONE:
        raise SettingsError(
            "LETHE_WITNESS_POLICY: it has no quorum: unset it, or name a quorum"
        )
    if not any(map(policy.accepts, log.verifiers)):
        raise SettingsError(
            "LETHE_WITNESS_POLICY: it lists other logs than this one, whose key is "
            f"{log.verifiers[-1].vkey}"
        )
    for witness in policy.witnesses:
        parts = urlsplit(witness.url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(
                "LETHE_WITNESS_POLICY: each witness needs an http(s) URL to ask it at"
            )
    return policy
