"""What the types cannot say about a template's settings."""

from __future__ import annotations

from corral.domain.file_paths import check_glob
from corral.domain.sensitive_fields import refuse_hidden
from corral.domain.templates import TemplateSettings, template_name
from corral.domain.variable_checks import check_declaration, check_names, check_values


def check_settings(settings: TemplateSettings, *, field: str = "settings") -> TemplateSettings:
    """Refuse what cannot work. Whether the parents exist is `selection.check_parents`'s to say."""
    for position, parent in enumerate(settings.parents):
        template_name(parent, field=f"{field}/parents/{position}")
    check_names(settings.variables, field=f"{field}/variables")
    for name, spec in settings.variable_types.items():
        check_declaration(name, spec, field=f"{field}/variable_types/{name[:80]}")
    check_values(settings.variable_types, settings.variables, field=f"{field}/variables")
    refuse_hidden(settings, field=field)
    for position, glob in enumerate(settings.substitute):
        check_glob(glob, field=f"{field}/substitute/{position}")
    return settings
