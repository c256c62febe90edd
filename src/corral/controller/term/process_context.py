"""What the API of a controller has in any role, from its configuration."""

from __future__ import annotations

import functools
import ipaddress
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from corral.controller.accounts.passwords import Passwords
from corral.controller.commands.command_process import CommandRunner
from corral.controller.dashboard.site_files import Site, open_site
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.browser_checks import AllowedHosts, BrowserChecks
from corral.domain.urls import shown_text
from corral.pki.keys import ClusterKey
from corral.system.clock import Clock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy
from corral.system.log_ring import LogPort

if TYPE_CHECKING:
    from corral.controller.accounts.oidc.login import OidcLogin


def process_context(
    config: ControllerConfig,
    *,
    passwords: Passwords,
    logs: LogPort,
    commands: CommandRunner | None,
    holder: str,
    leader: Callable[[], str],
    clock: Clock,
    entropy: Entropy,
) -> ProcessContext:
    oidc = _oidc(config, clock=clock, entropy=entropy)
    return ProcessContext(
        clock=clock,
        entropy=entropy,
        log_ring=logs.ring,
        set_log_level=logs.set_level,
        scrape_networks=[ipaddress.ip_network(each) for each in config.metrics.scrape_networks],
        body_limit=config.http.body_limit_bytes,
        limits=config.http.limits,
        browsers=BrowserChecks(AllowedHosts.of(config.http), origins=config.http.cors.origins),
        templates=config.templates,
        allow_insecure_login=config.http.allow_insecure_login,
        passwords=passwords,
        oidc=oidc,
        site=site_for(oidc),
        cluster_key=functools.partial(ClusterKey.require, config.cluster_key_path),
        commands=commands,
        scheme=config.http.scheme,
        leader=leader,
        holder=holder,
        configuration=_without_secrets(msgspec.to_builtins(config, enc_hook=str)),
        began=clock.monotonic(),
        instances_are_root=config.instances.development and os.geteuid() == 0,
    )


def _without_secrets(value: Any) -> Any:
    """Plain values with each address in them as by `shown_url`: users and passwords are part of some."""
    if isinstance(value, dict):
        return {key: _without_secrets(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return shown_text(value) if isinstance(value, str) else value


def site_for(oidc: OidcLogin | None) -> Site:
    """The site, whose login page names the provider if there is one. Blocking."""
    if oidc is None:
        return open_site()
    return open_site(provider=oidc.display_name, provider_origin=oidc.public_url)


def _oidc(config: ControllerConfig, *, clock: Clock, entropy: Entropy) -> OidcLogin | None:
    if not config.oidc.issuer:
        return None
    # Only here: their libraries take long to load, and most controllers have no provider.
    from corral.controller.accounts.oidc.cookie import cookie_key
    from corral.controller.accounts.oidc.login import OidcLogin

    key = functools.partial(cookie_key, config.cluster_key_path)
    return OidcLogin(config.oidc, public_url=config.http.public_url, key=key, clock=clock, entropy=entropy)
