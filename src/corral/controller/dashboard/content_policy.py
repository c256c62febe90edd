"""Content security policy of the dashboard.

Scripts and styles come from the assets alone and not from the whole origin, which routes of modules share.
"""

from __future__ import annotations

from corral.controller.dashboard.site_files import ASSETS_PATH


def content_policy(scheme: str, host: str) -> bytes:
    """The policy of a page under this scheme (`http` or `https`) and `Host`, which has to be one of the allowed ones.

    Sources in a policy cannot name an IPv6 address: there the own origin has to do."""
    if host.startswith("["):
        assets = frames = "'self'"
        sockets = ""
    else:
        origin = f"{scheme}://{host}"
        assets, frames = f"{origin}{ASSETS_PATH}", f"{origin}/pages-content/"
        sockets = f" {'wss' if scheme == 'https' else 'ws'}://{host}"
    return (
        f"default-src 'none'; script-src {assets}; worker-src {assets}; style-src {assets}; font-src {assets}; "
        f"img-src {assets} data:; connect-src 'self'{sockets}; frame-src {frames}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types svelte-trusted-html corral-worker-url"
    ).encode()
