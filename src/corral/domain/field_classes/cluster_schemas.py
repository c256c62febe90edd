"""Classes of the fields of all other schemas of the API: nodes, modules, tokens, logs, audit, decisions, the cluster.

As in `group_schemas`. The one list serves every place that shows such a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from corral.domain.field_classes.field_class import FieldClass, fields

CLUSTER_SCHEMAS: Final[Mapping[str, Mapping[str, FieldClass]]] = {
    # controller.events.frames
    "EventShape": fields(open="id type subject at data resource"),
    # The summary is redacted by its own fields before it is encoded.
    "EventResource": fields(open="kind id revision summary"),
    # controller.http.resources.event_resources
    "DeploymentSummary": fields(
        open="id group state target stable failed created_at ended_at revision", text="waiting outcome"
    ),
    "ModuleSummary": fields(open="id version phase intent revision", text="reason"),
    # controller.http.resources.event_types
    "EventTypeShape": fields(open="type meaning permission resource to_nodes fields"),
    "EventFieldShape": fields(open="name type required class_ meaning example"),
    # controller.http.messages.paging
    "Page": fields(open="items next"),
    # controller.http.messages.list_pages
    "SummaryPage": fields(open="items next total"),
    # controller.http.messages.responses
    "DocumentError": fields(open="code path group field", text="message hint"),
    "ErrorShape": fields(open="error"),
    "UniverseError": fields(text="error"),
    "ErrorDetail": fields(open="code status field errors digest", text="message hint"),
    # controller.http.openapi
    "OpenApiShape": fields(open="openapi info paths components"),
    # controller.http.pipeline.api_context
    "LeaderView": fields(open="holder epoch http grpc"),
    "MemberView": fields(open="id role http grpc version"),
    "IssuedCertificate": fields(open="certificate_pem ca_pem serial expires_at"),
    # controller.http.resources.audit
    "AuditShape": fields(
        open="number at actor actor_name action subject request outcome attempt",
        sensitive="before after address",
    ),
    # controller.http.resources.cluster
    "ClusterShape": fields(open="id created_at leader members version store nodes commit unreadable notes"),
    "EpochShape": fields(open="epoch"),
    "ShutDownShape": fields(open="holder http"),
    "SequenceShape": fields(open="before highest_used ignored"),
    # controller.http.resources.settings
    "SettingsShape": fields(open="controller"),
    # controller.http.resources.decisions
    "DecisionShape": fields(
        open=(
            "number id at kind subject epoch rejected request rule node deployment rejected_counts ties "
            "wake_at"
        ),
        text="reason cause inputs causes root",
    ),
    # controller.http.resources.events
    "TicketShape": fields(open="expires_at", shown_once="ticket"),
    # controller.http.resources.instances.commands
    "CommandShape": fields(open="name module help permission usage parameters"),
    "ParameterShape": fields(open="name required help"),
    # controller.http.resources.instances.command_execution: made for the caller, with no more rights than it has
    "CommandOutput": fields(open="command output exit_code error module"),
    "CommandError": fields(open="code message hint field"),
    # controller.http.resources.universe.commands
    "UniverseOutput": fields(open="command output error"),
    # controller.http.resources.join_tokens
    "JoinTokenShape": fields(
        open="id node_id state replace labels created_at created_by expires_at used_at used_by revision",
    ),
    "NewJoinTokenShape": fields(open="id node_id expires_at replace revision", shown_once="token command"),
    # controller.http.resources.logs
    "LogPage": fields(open="kept_since"),
    "LogShape": fields(
        open="number at level logger thread dropped_before",
        text="message",
        sensitive="throwable",
        log_fields="fields",
    ),
    "LogLevelShape": fields(open="source level"),
    # controller.http.resources.modules.capabilities
    "CapabilityPage": fields(open="items next unresolved"),
    "CapabilityShape": fields(open="id version provider consumers deprecated calls failures"),
    "UnresolvedShape": fields(open="module id version_range optional nodes", text="why reason"),
    # controller.http.resources.modules.module_nodes
    "OnNodesShape": fields(open="wanted active degraded waiting disconnected"),
    "NodeStateShape": fields(
        open="node connected phase version sha256 intent current refused declined pending settled updated_at live",
        text="reason progress",
        sensitive="error",
    ),
    "ModuleOnNodeShape": fields(open="module installed"),
    # controller.modules_on_nodes.node_metrics
    "ModuleUsage": fields(open="cpu_seconds memory_bytes threads processes calls failures"),
    # controller.http.resources.modules.module_schemas
    "ModuleShape": fields(
        open=(
            "id version title description hosts phase intent sha256 size signature on_nodes nodes provides "
            "requires extensions storage frontend previous_version installed_at updated_at failure history "
            "live revision"
        ),
        text="reason paused_reason",
        sensitive="settings",
    ),
    "ProvidedShape": fields(open="id version deprecated_since removed_in"),
    "RequiredShape": fields(open="id version_range optional from_"),
    "ExtensionShape": fields(open="id activation conflicts variants"),
    "VariantShape": fields(open="id platforms version_range file sha256 install_path"),
    "FrontendShape": fields(open="title icon nav permissions entry url"),
    "StepShape": fields(open="at from_ to version", text="reason"),
    "LiveShape": fields(
        open=(
            "pid cpu_seconds memory_bytes threads processes calls failures overruns longest_seconds routes "
            "subscriptions tasks commands"
        ),
        sensitive="log",
    ),
    "InstalledModule": fields(open="outcome", text="steps"),
    "ExaminedModule": fields(
        open="ok action id version current_version sha256 size problems requires signature expires_at",
        text="warnings",
    ),
    # controller.http.resources.modules.module_verbs
    "ConfigurationShape": fields(open="schema", sensitive="settings"),
    "ModuleHealthShape": fields(open="healthy", text="detail"),
    # controller.http.resources.modules.modules
    "Leaks": fields(open="items next"),
    "LeakShape": fields(open="module pid since killed threads tasks", sensitive="children"),
    # controller.http.resources.node_drain_schemas
    "NodeDrainShape": fields(
        open=(
            "id by started_at deadline_at shutdown was_cordoned drained_at exit_ordered_at progress "
            "instances ack"
        ),
        text="reason",
    ),
    "DrainAckShape": fields(open="running_instances estimated_seconds"),
    # controller.http.resources.nodes
    "NodeShape": fields(
        open=(
            "id state state_since admission labels address memory_mb reserved_memory_mb used_memory_mb cpus "
            "cpu_usage free_disk_mb instances used_ports runtimes capabilities session last_seen version "
            "host machine_id enrolled_at log_level claims settings stray_count strays drain revision"
        ),
        text="reason admission_reason",
    ),
    # controller.http.resources.node_summaries
    "NodeSummary": fields(
        open=(
            "id state state_since admission labels address connected memory_mb reserved_memory_mb used_memory_mb "
            "cpus cpu_usage free_disk_mb instances stray_count version last_seen revision"
        ),
        text="reason admission_reason",
    ),
    # controller.http.resources.probes
    "HealthShape": fields(open="status"),
    "ReadyShape": fields(open="status role epoch notes"),
    "PingShape": fields(open="pong version build cluster status node_id cluster_name master"),
    # controller.http.resources.tokens
    "LoginShape": fields(
        open="user display_name session kind expires_at recovery_codes_left return_path",
        shown_once="csrf token",
    ),
    "MeShape": fields(
        open="user display_name must_change_password has_totp token session permissions grants"
    ),
    # controller.http.resources.accounts.device_login
    "DeviceLoginShape": fields(open="user_code page expires_at", shown_once="device_code"),
    # Whoever has the code decides about the login by where it comes from.
    "WaitingLoginShape": fields(open="user_code address agent started_at expires_at"),
    # controller.http.resources.accounts.own_account
    "TotpSetupShape": fields(shown_once="secret uri setup"),
    "RecoveryCodesShape": fields(shown_once="codes"),
    # controller.http.resources.accounts.sessions
    "SessionShape": fields(
        open="id user kind authenticated_by created_at last_used_at expires_at revision",
        sensitive="address agent",
    ),
    # Everybody sees where he himself has logged in.
    "OwnSessionShape": fields(
        open="id kind authenticated_by address agent created_at last_used_at expires_at current"
    ),
    "OwnSessionList": fields(open="items next"),
    "GrantShape": fields(open="permissions scopes"),
    "Scope": fields(open="groups nodes"),
    "TokenShape": fields(
        open="id name role owner permissions scope created_at created_by expires_at last_used_at revision"
    ),
    "NewTokenShape": fields(open="warning", shown_once="token"),
    # controller.http.resources.accounts
    "UserShape": fields(
        open=(
            "name display_name bindings permissions locked provider provider_bindings has_password "
            "must_change_password has_totp login_delayed_seconds sessions tokens created_at created_by revision"
        )
    ),
    "LockShape": fields(open="by at", text="reason"),
    "Binding": fields(open="role scope"),
    "RoleShape": fields(open="name fixed description permissions users created_at created_by revision"),
    "RoleList": fields(open="items next"),
    # controller.http.resources.why.why_answer
    "WhyShape": fields(
        open="subject state files_kept decisions restarts now chain would_change",
        text="summary",
    ),
    "RestartShape": fields(open="at crash incarnation restarted_as uptime_ms", text="reason"),
    "NowShape": fields(open="topic subject rule node rejected rejected_counts at lines", text="reason"),
    "ChainShape": fields(open="kind id subject rule at", text="reason"),
    "WouldChangeShape": fields(open="at missing", text="condition effect"),
    # controller.http.resources.workload
    "WorkloadTokenShape": fields(open="expires_at", shown_once="token"),
    # controller.instances.drain_progress
    "DrainLine": fields(open="id group state players waits_for last_copy empty_at"),
    # controller.sessions.live_nodes
    "StrayRun": fields(open="instance group incarnation", text="reason"),
    # controller.state.quarantine
    "Unreadable": fields(open="collection id revision", text="reason"),
    # domain.decisions
    "Alternative": fields(open="subject code", text="reason numbers"),
    # domain.modules.records
    "SignatureFacts": fields(open="kind identity key_sha256 legacy blob"),
    "FailureDetails": fields(
        open="at cpu_seconds memory_bytes threads",
        text="reason",
        sensitive="message traceback log",
    ),
    # domain.node_claims
    "NodeClaims": fields(open="labels memory_mb cpus runtimes"),
    "NodeSettings": fields(open="labels withheld memory_mb cpus runtimes"),
    # domain.planning.drain_progress
    "DrainProgress": fields(
        open="total moved waiting_players waiting_room waiting_turn stopping unreachable deadline_at",
    ),
    # modules.archive.compatibility
    "Finding": fields(open="code field", text="message hint"),
    "RequirementView": fields(open="id version_range optional state provider provider_version"),
    # controller.http.resources.universe
    "UniverseController": fields(
        open="id cluster_name version master address port api_port uptime_ms system",
    ),
    "UniverseSystem": fields(
        open="available_processors system_load_average free_memory total_memory max_memory",
    ),
    "UniverseNode": fields(open="id name address port local resources"),
    "UniverseNodeDetail": fields(open="instances"),
    "UniverseResources": fields(open="used_ram_mb used_cpu"),
    "UniverseInstance": fields(
        open=(
            "id configuration_name wrapper_node_id host_address allocated_port state last_heartbeat "
            "process_pid allocated_ram_mb allocated_cpu runtime"
        ),
    ),
    "UniverseMessage": fields(open="message"),
    "UniverseLifecycle": fields(open="message instance"),
    "UniverseLog": fields(open="instance_id lines total_lines requested_lines"),
    "UniverseConfiguration": fields(
        open=(
            "name runtime static ram_mb cpu instance_groups nodes host_address available_ports "
            "minimum_service_count template_installation_config file_modifications additional_ports"
        ),
        sensitive="command environment_variables properties",
    ),
    "UniverseTemplateInstallation": fields(
        open="all_of all_in_groups one_of one_in_groups on_template_paste_override_present_files",
    ),
    "UniverseTemplateEntry": fields(open="name group storage priority"),
    "UniversePortRange": fields(open="min max"),
    "UniversePort": fields(open="port protocol name"),
    "UniverseTemplate": fields(open="group name path"),
    "UniverseTemplateFiles": fields(open="group name files"),
    "UniverseFileChange": fields(open="message path"),
    "UniverseSync": fields(open="template node storage success", text="message"),
}
