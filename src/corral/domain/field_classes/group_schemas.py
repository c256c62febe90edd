"""Classes of the fields of groups, instances, deployments, plans, templates and consoles in the API.

By the name of the schema; a subtype has the fields of its bases from their rows. A schema or a field that is missing here
is hidden from callers without `instances.sensitive`, and refused by `tests/unit/house/test_field_classes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from corral.domain.field_classes.field_class import FieldClass, fields

_EXIT: Final = fields(
    open="code signal crashed known core_dumped outcome crash_class ended_at",
    text="summary",
    sensitive="rung",
)

GROUP_SCHEMAS: Final[Mapping[str, Mapping[str, FieldClass]]] = {
    # controller.consoles.pages
    "ConsolePage": fields(
        open="incarnation items next_offset previous_offset gap gaps first_offset end_offset tail"
    ),
    "ConsoleLine": fields(open="offset time line partial continued"),
    "ConsoleText": fields(open="offset time text next_offset gap"),
    # controller.consoles.searches
    "ConsoleMatches": fields(
        open="items next notes incarnation next_offset gap gaps first_offset end_offset"
    ),
    "ConsoleMatch": fields(open="incarnation offset time line match partial"),
    "ConsoleGapShape": fields(open="from_offset to_offset late", text="reason"),
    # controller.distribution.node_caches
    "CacheReport": fields(open="node total_bytes quota_bytes templates artifacts bootstraps failures"),
    "CachedTemplate": fields(open="name hash version size last_used"),
    "CachedArtifact": fields(open="platform version file size sha256 cached_at"),
    "CachedBootstrap": fields(open="config_format version size"),
    "CacheTrouble": fields(open="code", text="subject message"),
    "SyncAnswer": fields(open="node ok code", text="message"),
    # controller.http.resources.dry_runs
    "DryRunShape": fields(open="changes instances players worlds decisions", text="warnings"),
    "GroupChangeShape": fields(open="group change fields"),
    "FieldChangeShape": fields(open="field effect", sensitive="before after"),
    "TouchedInstance": fields(open="stop_after_seconds id group node players", text="effect"),
    "PlannedShape": fields(open="kind rule group instance node", text="reason"),
    # controller.http.resources.groups.apply
    "ApplyShape": fields(
        open="dry_run created changed unchanged deleted groups decisions decisions_count unfinished revision",
        text="summary",
    ),
    "GroupChange": fields(
        open=(
            "name path action adopted changes outdated outdated_count placement placement_count stopped "
            "stopped_count held"
        ),
    ),
    "FieldChange": fields(open="field effect", sensitive="before after"),
    # controller.http.resources.groups.deployment_schemas
    "DeploymentShape": fields(
        open=(
            "id group state resumes phase_since created_at ended_at target stable options trigger by "
            "last_progress_at best_healthy failed failures progress revision"
        ),
        text="reason waiting outcome undone",
    ),
    # controller.http.resources.groups.group_schemas
    "GroupShape": fields(open="status revision"),
    # controller.http.resources.groups.resolved
    "ResolvedGroup": fields(open="name ancestors document origins revision"),
    "GroupSummary": fields(
        open=(
            "name parent abstract runtime category static labels mode min max wanted states instances ready warm "
            "lost draining players max_players memory_mb held paused paused_until closed deleting deployment "
            "deployment_revision stable_revision owner updated_at revision"
        ),
        text="reason",
    ),
    "GroupStatus": fields(
        open=(
            "wanted target instances ready warm lost draining scaling maintenance paused deleting owner "
            "file_gone hold deployment deployment_revision stable_revision pinned_revision drift "
            "document_sha256 created_at updated_at"
        ),
        text="reason",
    ),
    "GroupScalingShape": fields(
        open="mode min max players unknown need floor last_scale cooldown_until schedules changes_at",
        text="waits_for",
    ),
    "MaintenanceShape": fields(open="schedule"),
    "GroupDriftShape": fields(
        open=(
            "outdated outdated_count placement placement_count unknown_count command pinned_revision "
            "document_pending"
        ),
        text="nodes refused",
    ),
    # controller.http.resources.groups.registry
    "RegistryShape": fields(open="group held maintenance fallback ready instances without_address next"),
    "FallbackShape": fields(open="group ready maintenance"),
    "RegistryInstance": fields(open="id node address port ports players max_players"),
    # controller.http.resources.groups.reload
    "ReloadShape": fields(open="groups errors gone", text="summary"),
    # controller.http.resources.groups.revisions
    "RevisionShape": fields(
        open="group number created_at by trigger restart basis stable pinned instances changed",
    ),
    "RevisionDocument": fields(open="document templates artifact extensions"),
    # controller.http.resources.instances.crashes
    "CrashShape": fields(
        open="id instance incarnation group node at crash_class uptime_ms restarted_as exit",
        text="signature",
    ),
    "CrashReportShape": fields(open="tail tail_offset"),
    # controller.http.resources.instances.instance_plans
    "PlanShape": fields(open="id hash plan picks"),
    # controller.http.resources.instances.instance_files
    "InstanceFilesShape": fields(open="items next truncated"),
    "InstanceFileShape": fields(
        open="path kind size modified_at mode digest binary origin template template_version"
    ),
    "FileOriginShape": fields(open="path origin template template_version digest size content"),
    # controller.http.resources.instances.instance_file_changes
    "InstanceFileChangeShape": fields(open="id path to digest size entries changed"),
    # controller.http.resources.instances.instance_schemas
    "InstanceShape": fields(
        open=(
            "id group node state wanted ready port ports pid players max_players metrics stage started_at "
            "ended_at exit plan_hash incarnation restarts runtime deployment_revision drift warm lost "
            "lost_at replaces moves replaced_by uptime_ms last_seen memory_mb static created_at decision "
            "start_failure modules host_address revision"
        ),
        text="reason",
        sensitive="variables",
    ),
    "InstanceSummary": fields(
        open=(
            "id group node state wanted ready stage port players max_players memory_mb incarnation restarts "
            "runtime deployment_revision static warm lost started_at ended_at revision"
        ),
        text="reason exit",
    ),
    "ExitShape": _EXIT,
    # domain.groups.instance_records
    "ExitRecord": _EXIT,
    "ModulesShape": fields(open="changes missing"),
    # controller.http.resources.instances.instances
    "CommandTaken": fields(open="id incarnation offset", sensitive="command"),
    # controller.http.resources.instances.sent_commands
    "SentCommandShape": fields(open="number at by by_name incarnation node offset", sensitive="line"),
    # controller.consoles.stream_messages
    "RunShape": fields(open="incarnation node"),
    "EndShape": fields(open="incarnation state ended_at exit"),
    # controller.consoles.watchers
    "InputLine": fields(open="number time by by_name incarnation offset id", sensitive="line"),
    # controller.http.resources.instances.runs
    "RunsShape": fields(open="items next", text="notes"),
    "InstanceRunShape": fields(
        open="incarnation node state started_at ended_at exit first_offset end_offset plan_hash crash nonce",
    ),
    # controller.http.resources.templates.catalog
    "CatalogShape": fields(
        open=(
            "platform version file sha256 size category config_format description used_by created_at "
            "updated_at revision"
        ),
        url="url",
    ),
    # controller.http.resources.templates.template_schemas
    "ChangedTemplate": fields(open="unchanged"),
    "TemplateShape": fields(
        open=(
            "name group version hash files size settings note created_at updated_at created_by versions "
            "used_by revision"
        ),
    ),
    "VersionShape": fields(open="number current hash files size note created_at created_by settings"),
    "FileShape": fields(open="path mode size digest"),
    # controller.http.resources.templates.template_versions
    "SyncShape": fields(open="items"),
    "DiffShape": fields(
        open="name from_ to added removed changed added_directories removed_directories settings",
    ),
    "FileChangeShape": fields(open="path old_size new_size old_mode new_mode content"),
    # controller.instances.confirmations
    "World": fields(open="id node directory"),
    # domain.groups.deployments
    "DeploymentFailure": fields(
        open="at instance incarnation node code phase crash",
        text="reason",
        sensitive="lines",
    ),
    # domain.groups.disconnect_spec
    "DisconnectSpec": fields(open="replace_after_seconds stop_after_seconds"),
    # domain.groups.group
    "TemplateSelection": fields(open="all_of all_in_groups one_of one_in_groups"),
    "TemplateChoice": fields(open="name priority override"),
    "PatchSpec": fields(open="file path op format", sensitive="value"),
    "ArtifactSpec": fields(open="platform version sha256 file", url="url"),
    "ExtensionSpec": fields(open="id variant module artifact install_path"),
    "JvmSpec": fields(open="jar java heap_mb", sensitive="args"),
    "WarmupSpec": fields(open="paths"),
    "DependencySpec": fields(open="group ready"),
    "PortSpec": fields(open="range port of offset protocol"),
    "AffinitySpec": fields(open="label group weight required"),
    "SpreadSpec": fields(open="by weight max_skew"),
    "StopRungSpec": fields(open="signal wait_seconds", sensitive="command"),
    "RestartSpec": fields(open="on attempts interval_seconds delay_ms max_delay_ms"),
    "CrashLoopSpec": fields(open="failures within_seconds pause_seconds max_pause_seconds"),
    "GroupSpec": fields(
        open=(
            "name parent abstract runtime variable_types strict_variables substitute templates "
            "template_selection merge patches artifact extensions jvm warmup category config_format static "
            "protected_paths probes min max scaling schedules maintenance warm min_available priority "
            "depends_on fallback_group static_names memory_mb cpu pids disk_mb console_mb ports max_players "
            "host_address nodes node_labels node_capabilities affinity spread run_as isolate stdin tty "
            "line_buffered stop startup_timeout_seconds min_alive_ms max_lifetime_seconds "
            "crash_keep_seconds clean_exit_codes restart crash_loop disconnect update labels"
        ),
        sensitive="command args env variables properties",
    ),
    # domain.groups.instance_records
    "ScaleFloor": fields(open="count until"),
    "LastScale": fields(open="at direction need"),
    "CrashLoop": fields(open="since until pauses decision crash", text="reason"),
    "Hold": fields(open="by since when_empty", text="reason"),
    "StartFailure": fields(open="stage code permanent retry_after_seconds", text="message"),
    # domain.groups.plans
    "PlanTemplate": fields(open="name version hash override"),
    "PlanArtifact": fields(open="platform version file sha256 size", url="url"),
    "PlanExtension": fields(open="id variant module artifact"),
    "Plan": fields(
        open=(
            "version group runtime variable_types strict_variables substitute templates merge patches "
            "artifact extensions jvm warm_paths category config_format static protected_paths probes "
            "memory_mb cpu pids disk_mb console_mb max_players host_address run_as isolate stdin tty "
            "line_buffered stop startup_timeout_seconds min_alive_ms max_lifetime_seconds "
            "crash_keep_seconds restart restart_on clean_exit_codes stop_after_seconds"
        ),
        sensitive="command args env variables",
    ),
    "PlanJvm": fields(open="jar java heap_mb", sensitive="args"),
    "PlanRestart": fields(open="attempts interval_seconds delay_ms max_delay_ms"),
    # domain.groups.probes
    "ProbeSpec": fields(
        open="kind pattern port protocol statuses interval_ms timeout_ms",
        url="path",
        sensitive="command",
    ),
    # domain.groups.scaling_spec
    "ScalingSpec": fields(
        open="mode up_threshold free_slots idle_seconds window_seconds cooldown_seconds max_step",
    ),
    "ScheduleSpec": fields(open="name cron time_zone duration_seconds min max warm mode maintenance"),
    "MaintenanceSpec": fields(open="enabled", text="message", sensitive="bypass"),
    # domain.groups.update_spec
    "UpdateSpec": fields(
        open=(
            "strategy max_surge max_unavailable canary canary_seconds promote min_healthy_seconds "
            "progress_seconds max_failures auto_rollback drain_seconds auto gate"
        ),
    ),
    "GateSpec": fields(open="min max"),
    # domain.modules.records
    "ModuleChange": fields(
        open="module version env_set env_removed overridden",
        text="dropped",
        sensitive="jvm_args_added jvm_args_removed args_added args_removed",
    ),
    "Overridden": fields(open="kind by", sensitive="name"),
    # domain.planning.rollout_members
    "DeploymentProgress": fields(
        open="wanted goal updated healthy starting outdated draining waiting_players canaries lost unhealthy",
    ),
    "WaitingInstance": fields(open="id players"),
    # domain.spec
    "VariableSpec": fields(open="type required min max pattern description", sensitive="default choices"),
    # domain.template_diff
    "SettingChange": fields(open="field", sensitive="old new"),
    # domain.templates
    "TemplateSettings": fields(open="description parents variable_types substitute", sensitive="variables"),
}
