from corral.wire.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstanceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTANCE_STATE_UNSPECIFIED: _ClassVar[InstanceState]
    INSTANCE_STATE_SCHEDULED: _ClassVar[InstanceState]
    INSTANCE_STATE_PREPARING: _ClassVar[InstanceState]
    INSTANCE_STATE_STARTING: _ClassVar[InstanceState]
    INSTANCE_STATE_RUNNING: _ClassVar[InstanceState]
    INSTANCE_STATE_STOPPING: _ClassVar[InstanceState]
    INSTANCE_STATE_STOPPED: _ClassVar[InstanceState]
    INSTANCE_STATE_CRASHED: _ClassVar[InstanceState]
    INSTANCE_STATE_DRAINING: _ClassVar[InstanceState]
    INSTANCE_STATE_OFFLINE: _ClassVar[InstanceState]

class StartPreparationStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_PREPARATION_STAGE_UNSPECIFIED: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_VALIDATION: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_TEMPLATE_APPLY: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_RUNTIME_PROVISION: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_EXTENSION_PROVISION: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_BOOTSTRAP_WARMUP: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_VARIABLE_SUBSTITUTION: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_CONFIG_PATCH: _ClassVar[StartPreparationStage]
    START_PREPARATION_STAGE_PROCESS_START: _ClassVar[StartPreparationStage]

class StartFailureDisposition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_FAILURE_DISPOSITION_UNSPECIFIED: _ClassVar[StartFailureDisposition]
    START_FAILURE_DISPOSITION_PERMANENT: _ClassVar[StartFailureDisposition]
    START_FAILURE_DISPOSITION_TRANSIENT: _ClassVar[StartFailureDisposition]

class Readiness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READINESS_UNSPECIFIED: _ClassVar[Readiness]
    READINESS_WAITING: _ClassVar[Readiness]
    READINESS_READY: _ClassVar[Readiness]
    READINESS_FAILED: _ClassVar[Readiness]
INSTANCE_STATE_UNSPECIFIED: InstanceState
INSTANCE_STATE_SCHEDULED: InstanceState
INSTANCE_STATE_PREPARING: InstanceState
INSTANCE_STATE_STARTING: InstanceState
INSTANCE_STATE_RUNNING: InstanceState
INSTANCE_STATE_STOPPING: InstanceState
INSTANCE_STATE_STOPPED: InstanceState
INSTANCE_STATE_CRASHED: InstanceState
INSTANCE_STATE_DRAINING: InstanceState
INSTANCE_STATE_OFFLINE: InstanceState
START_PREPARATION_STAGE_UNSPECIFIED: StartPreparationStage
START_PREPARATION_STAGE_VALIDATION: StartPreparationStage
START_PREPARATION_STAGE_TEMPLATE_APPLY: StartPreparationStage
START_PREPARATION_STAGE_RUNTIME_PROVISION: StartPreparationStage
START_PREPARATION_STAGE_EXTENSION_PROVISION: StartPreparationStage
START_PREPARATION_STAGE_BOOTSTRAP_WARMUP: StartPreparationStage
START_PREPARATION_STAGE_VARIABLE_SUBSTITUTION: StartPreparationStage
START_PREPARATION_STAGE_CONFIG_PATCH: StartPreparationStage
START_PREPARATION_STAGE_PROCESS_START: StartPreparationStage
START_FAILURE_DISPOSITION_UNSPECIFIED: StartFailureDisposition
START_FAILURE_DISPOSITION_PERMANENT: StartFailureDisposition
START_FAILURE_DISPOSITION_TRANSIENT: StartFailureDisposition
READINESS_UNSPECIFIED: Readiness
READINESS_WAITING: Readiness
READINESS_READY: Readiness
READINESS_FAILED: Readiness

class NamedPort(_message.Message):
    __slots__ = ("name", "port", "protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    port: int
    protocol: str
    def __init__(self, name: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("memory_mb", "cpu_cores", "disk_mb", "pids", "console_mb")
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    DISK_MB_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_MB_FIELD_NUMBER: _ClassVar[int]
    memory_mb: int
    cpu_cores: float
    disk_mb: int
    pids: int
    console_mb: int
    def __init__(self, memory_mb: _Optional[int] = ..., cpu_cores: _Optional[float] = ..., disk_mb: _Optional[int] = ..., pids: _Optional[int] = ..., console_mb: _Optional[int] = ...) -> None: ...

class StopRung(_message.Message):
    __slots__ = ("command", "signal", "wait_ms")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    command: str
    signal: str
    wait_ms: int
    def __init__(self, command: _Optional[str] = ..., signal: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("kind", "settings", "interval_ms", "timeout_ms", "failures")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    settings: _containers.ScalarMap[str, str]
    interval_ms: int
    timeout_ms: int
    failures: int
    def __init__(self, kind: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ..., interval_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., failures: _Optional[int] = ...) -> None: ...

class RestartPolicy(_message.Message):
    __slots__ = ("attempts", "interval_ms", "delay_ms", "max_delay_ms")
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    attempts: int
    interval_ms: int
    delay_ms: int
    max_delay_ms: int
    def __init__(self, attempts: _Optional[int] = ..., interval_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., max_delay_ms: _Optional[int] = ...) -> None: ...

class RunningInstance(_message.Message):
    __slots__ = ("instance_id", "group", "port", "state", "incarnation", "pid", "started_at_ms", "console_offset", "exit", "readiness", "plan_hash", "ports", "memory_mb", "reason", "module_changes", "modules_missing", "ticket", "nonce")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    READINESS_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MODULE_CHANGES_FIELD_NUMBER: _ClassVar[int]
    MODULES_MISSING_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    group: str
    port: int
    state: InstanceState
    incarnation: int
    pid: int
    started_at_ms: int
    console_offset: int
    exit: ExitStatus
    readiness: Readiness
    plan_hash: str
    ports: _containers.RepeatedCompositeFieldContainer[NamedPort]
    memory_mb: int
    reason: str
    module_changes: _containers.RepeatedCompositeFieldContainer[ModuleChange]
    modules_missing: _containers.RepeatedScalarFieldContainer[str]
    ticket: str
    nonce: str
    def __init__(self, instance_id: _Optional[str] = ..., group: _Optional[str] = ..., port: _Optional[int] = ..., state: _Optional[_Union[InstanceState, str]] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., console_offset: _Optional[int] = ..., exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., readiness: _Optional[_Union[Readiness, str]] = ..., plan_hash: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[NamedPort, _Mapping]]] = ..., memory_mb: _Optional[int] = ..., reason: _Optional[str] = ..., module_changes: _Optional[_Iterable[_Union[ModuleChange, _Mapping]]] = ..., modules_missing: _Optional[_Iterable[str]] = ..., ticket: _Optional[str] = ..., nonce: _Optional[str] = ...) -> None: ...

class RunName(_message.Message):
    __slots__ = ("instance_id", "incarnation")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    incarnation: int
    def __init__(self, instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class AskRunEnds(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunName]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunName, _Mapping]]] = ...) -> None: ...

class RunEnds(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunningInstance]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunningInstance, _Mapping]]] = ...) -> None: ...

class ModuleChange(_message.Message):
    __slots__ = ("module_id", "version", "jvm_args_added", "jvm_args_removed", "args_added", "args_removed", "env_set", "env_removed", "dropped", "overridden")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JVM_ARGS_ADDED_FIELD_NUMBER: _ClassVar[int]
    JVM_ARGS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    ARGS_ADDED_FIELD_NUMBER: _ClassVar[int]
    ARGS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    ENV_SET_FIELD_NUMBER: _ClassVar[int]
    ENV_REMOVED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    version: str
    jvm_args_added: _containers.RepeatedScalarFieldContainer[str]
    jvm_args_removed: _containers.RepeatedScalarFieldContainer[str]
    args_added: _containers.RepeatedScalarFieldContainer[str]
    args_removed: _containers.RepeatedScalarFieldContainer[str]
    env_set: _containers.RepeatedScalarFieldContainer[str]
    env_removed: _containers.RepeatedScalarFieldContainer[str]
    dropped: str
    overridden: _containers.RepeatedCompositeFieldContainer[ModuleOverride]
    def __init__(self, module_id: _Optional[str] = ..., version: _Optional[str] = ..., jvm_args_added: _Optional[_Iterable[str]] = ..., jvm_args_removed: _Optional[_Iterable[str]] = ..., args_added: _Optional[_Iterable[str]] = ..., args_removed: _Optional[_Iterable[str]] = ..., env_set: _Optional[_Iterable[str]] = ..., env_removed: _Optional[_Iterable[str]] = ..., dropped: _Optional[str] = ..., overridden: _Optional[_Iterable[_Union[ModuleOverride, _Mapping]]] = ...) -> None: ...

class ModuleOverride(_message.Message):
    __slots__ = ("kind", "name", "by")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    by: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class ExitStatus(_message.Message):
    __slots__ = ("known", "code", "signal", "core_dumped", "outcome", "summary", "ended_at_ms", "rung", "crash_class")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CORE_DUMPED_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUNG_FIELD_NUMBER: _ClassVar[int]
    CRASH_CLASS_FIELD_NUMBER: _ClassVar[int]
    known: bool
    code: int
    signal: int
    core_dumped: bool
    outcome: str
    summary: str
    ended_at_ms: int
    rung: str
    crash_class: str
    def __init__(self, known: _Optional[bool] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., core_dumped: _Optional[bool] = ..., outcome: _Optional[str] = ..., summary: _Optional[str] = ..., ended_at_ms: _Optional[int] = ..., rung: _Optional[str] = ..., crash_class: _Optional[str] = ...) -> None: ...

class StartInstance(_message.Message):
    __slots__ = ("instance_id", "group", "port", "memory_mb", "jvm_args", "env", "jar_file", "plugin_token", "templates", "startup_timeout_seconds", "shutdown_grace_seconds", "max_lifetime_seconds", "deployment_revision", "static_instance", "protected_paths", "category", "download_url", "platform", "platform_version", "max_players", "config_format", "composition_plan", "isolation", "resolved_variables", "incarnation", "runtime", "command", "args", "ports", "limits", "stop_ladder", "probes", "restart_policy", "run_as", "tty", "stdin", "line_buffered", "plan_hash", "decision_id", "isolate", "min_alive_ms", "crash_keep_seconds", "api_url", "ticket", "api_cluster_tls")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ResolvedVariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    JVM_ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    JAR_FILE_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    STARTUP_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_REVISION_FIELD_NUMBER: _ClassVar[int]
    STATIC_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_PATHS_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_URL_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_PLAYERS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FORMAT_FIELD_NUMBER: _ClassVar[int]
    COMPOSITION_PLAN_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_VARIABLES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STOP_LADDER_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    RESTART_POLICY_FIELD_NUMBER: _ClassVar[int]
    RUN_AS_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    LINE_BUFFERED_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    ISOLATE_FIELD_NUMBER: _ClassVar[int]
    MIN_ALIVE_MS_FIELD_NUMBER: _ClassVar[int]
    CRASH_KEEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    API_URL_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    API_CLUSTER_TLS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    group: str
    port: int
    memory_mb: int
    jvm_args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    jar_file: str
    plugin_token: str
    templates: _containers.RepeatedCompositeFieldContainer[_plan_pb2.TemplateRef]
    startup_timeout_seconds: int
    shutdown_grace_seconds: int
    max_lifetime_seconds: int
    deployment_revision: int
    static_instance: bool
    protected_paths: _containers.RepeatedScalarFieldContainer[str]
    category: _plan_pb2.InstanceCategory
    download_url: str
    platform: str
    platform_version: str
    max_players: int
    config_format: _plan_pb2.ConfigFormat
    composition_plan: _plan_pb2.CompositionPlan
    isolation: _plan_pb2.RuntimeIsolation
    resolved_variables: _containers.ScalarMap[str, str]
    incarnation: int
    runtime: str
    command: _containers.RepeatedScalarFieldContainer[str]
    args: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedCompositeFieldContainer[NamedPort]
    limits: Limits
    stop_ladder: _containers.RepeatedCompositeFieldContainer[StopRung]
    probes: _containers.RepeatedCompositeFieldContainer[Probe]
    restart_policy: RestartPolicy
    run_as: str
    tty: bool
    stdin: str
    line_buffered: bool
    plan_hash: str
    decision_id: str
    isolate: str
    min_alive_ms: int
    crash_keep_seconds: int
    api_url: str
    ticket: str
    api_cluster_tls: bool
    def __init__(self, instance_id: _Optional[str] = ..., group: _Optional[str] = ..., port: _Optional[int] = ..., memory_mb: _Optional[int] = ..., jvm_args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., jar_file: _Optional[str] = ..., plugin_token: _Optional[str] = ..., templates: _Optional[_Iterable[_Union[_plan_pb2.TemplateRef, _Mapping]]] = ..., startup_timeout_seconds: _Optional[int] = ..., shutdown_grace_seconds: _Optional[int] = ..., max_lifetime_seconds: _Optional[int] = ..., deployment_revision: _Optional[int] = ..., static_instance: _Optional[bool] = ..., protected_paths: _Optional[_Iterable[str]] = ..., category: _Optional[_Union[_plan_pb2.InstanceCategory, str]] = ..., download_url: _Optional[str] = ..., platform: _Optional[str] = ..., platform_version: _Optional[str] = ..., max_players: _Optional[int] = ..., config_format: _Optional[_Union[_plan_pb2.ConfigFormat, str]] = ..., composition_plan: _Optional[_Union[_plan_pb2.CompositionPlan, _Mapping]] = ..., isolation: _Optional[_Union[_plan_pb2.RuntimeIsolation, _Mapping]] = ..., resolved_variables: _Optional[_Mapping[str, str]] = ..., incarnation: _Optional[int] = ..., runtime: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., args: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[_Union[NamedPort, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., stop_ladder: _Optional[_Iterable[_Union[StopRung, _Mapping]]] = ..., probes: _Optional[_Iterable[_Union[Probe, _Mapping]]] = ..., restart_policy: _Optional[_Union[RestartPolicy, _Mapping]] = ..., run_as: _Optional[str] = ..., tty: _Optional[bool] = ..., stdin: _Optional[str] = ..., line_buffered: _Optional[bool] = ..., plan_hash: _Optional[str] = ..., decision_id: _Optional[str] = ..., isolate: _Optional[str] = ..., min_alive_ms: _Optional[int] = ..., crash_keep_seconds: _Optional[int] = ..., api_url: _Optional[str] = ..., ticket: _Optional[str] = ..., api_cluster_tls: _Optional[bool] = ...) -> None: ...

class StartInstanceAck(_message.Message):
    __slots__ = ("instance_id", "accepted", "error_message", "plan_hash", "stage", "error_code", "failure_disposition", "retry_after_seconds", "incarnation", "pid", "started_at_ms", "console_offset", "exit", "readiness", "state", "nonce")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    READINESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    accepted: bool
    error_message: str
    plan_hash: str
    stage: StartPreparationStage
    error_code: str
    failure_disposition: StartFailureDisposition
    retry_after_seconds: int
    incarnation: int
    pid: int
    started_at_ms: int
    console_offset: int
    exit: ExitStatus
    readiness: Readiness
    state: InstanceState
    nonce: str
    def __init__(self, instance_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., error_message: _Optional[str] = ..., plan_hash: _Optional[str] = ..., stage: _Optional[_Union[StartPreparationStage, str]] = ..., error_code: _Optional[str] = ..., failure_disposition: _Optional[_Union[StartFailureDisposition, str]] = ..., retry_after_seconds: _Optional[int] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., console_offset: _Optional[int] = ..., exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., readiness: _Optional[_Union[Readiness, str]] = ..., state: _Optional[_Union[InstanceState, str]] = ..., nonce: _Optional[str] = ...) -> None: ...

class StopInstance(_message.Message):
    __slots__ = ("instance_id", "force", "incarnation", "reason", "decision_id")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    force: bool
    incarnation: int
    reason: str
    decision_id: str
    def __init__(self, instance_id: _Optional[str] = ..., force: _Optional[bool] = ..., incarnation: _Optional[int] = ..., reason: _Optional[str] = ..., decision_id: _Optional[str] = ...) -> None: ...

class StopInstanceAck(_message.Message):
    __slots__ = ("instance_id", "accepted", "error_message", "incarnation", "state", "error_code")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    accepted: bool
    error_message: str
    incarnation: int
    state: InstanceState
    error_code: str
    def __init__(self, instance_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., error_message: _Optional[str] = ..., incarnation: _Optional[int] = ..., state: _Optional[_Union[InstanceState, str]] = ..., error_code: _Optional[str] = ...) -> None: ...

class SendCommand(_message.Message):
    __slots__ = ("instance_id", "command", "incarnation", "request_id", "command_id", "repeated")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    command: str
    incarnation: int
    request_id: str
    command_id: str
    repeated: bool
    def __init__(self, instance_id: _Optional[str] = ..., command: _Optional[str] = ..., incarnation: _Optional[int] = ..., request_id: _Optional[str] = ..., command_id: _Optional[str] = ..., repeated: _Optional[bool] = ...) -> None: ...

class SendCommandAck(_message.Message):
    __slots__ = ("request_id", "instance_id", "incarnation", "accepted", "error_code", "error_message", "unread_bytes", "repeated", "console_offset")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    UNREAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    instance_id: str
    incarnation: int
    accepted: bool
    error_code: str
    error_message: str
    unread_bytes: int
    repeated: bool
    console_offset: int
    def __init__(self, request_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., accepted: _Optional[bool] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., unread_bytes: _Optional[int] = ..., repeated: _Optional[bool] = ..., console_offset: _Optional[int] = ...) -> None: ...

class InstanceStatusUpdate(_message.Message):
    __slots__ = ("instance_id", "state", "port", "player_count", "uptime_ms", "incarnation", "pid", "started_at_ms", "console_offset", "exit", "readiness", "reason", "stage", "players_known", "max_players", "module_changes", "modules_missing", "files_kept", "former_exit", "nonce", "players_reported")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PLAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    READINESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PLAYERS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    MAX_PLAYERS_FIELD_NUMBER: _ClassVar[int]
    MODULE_CHANGES_FIELD_NUMBER: _ClassVar[int]
    MODULES_MISSING_FIELD_NUMBER: _ClassVar[int]
    FILES_KEPT_FIELD_NUMBER: _ClassVar[int]
    FORMER_EXIT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PLAYERS_REPORTED_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    state: InstanceState
    port: int
    player_count: int
    uptime_ms: int
    incarnation: int
    pid: int
    started_at_ms: int
    console_offset: int
    exit: ExitStatus
    readiness: Readiness
    reason: str
    stage: StartPreparationStage
    players_known: bool
    max_players: int
    module_changes: _containers.RepeatedCompositeFieldContainer[ModuleChange]
    modules_missing: _containers.RepeatedScalarFieldContainer[str]
    files_kept: _containers.RepeatedScalarFieldContainer[str]
    former_exit: ExitStatus
    nonce: str
    players_reported: bool
    def __init__(self, instance_id: _Optional[str] = ..., state: _Optional[_Union[InstanceState, str]] = ..., port: _Optional[int] = ..., player_count: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., console_offset: _Optional[int] = ..., exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., readiness: _Optional[_Union[Readiness, str]] = ..., reason: _Optional[str] = ..., stage: _Optional[_Union[StartPreparationStage, str]] = ..., players_known: _Optional[bool] = ..., max_players: _Optional[int] = ..., module_changes: _Optional[_Iterable[_Union[ModuleChange, _Mapping]]] = ..., modules_missing: _Optional[_Iterable[str]] = ..., files_kept: _Optional[_Iterable[str]] = ..., former_exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., nonce: _Optional[str] = ..., players_reported: _Optional[bool] = ...) -> None: ...

class CrashReport(_message.Message):
    __slots__ = ("instance_id", "group", "exit_code", "log_tail", "uptime_ms", "incarnation", "exit", "crash_class", "signature", "log_tail_offset", "restarted_as", "restart_in_ms", "pid", "started_at_ms", "ticket", "nonce")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CRASH_CLASS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_AS_FIELD_NUMBER: _ClassVar[int]
    RESTART_IN_MS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    group: str
    exit_code: int
    log_tail: _containers.RepeatedScalarFieldContainer[str]
    uptime_ms: int
    incarnation: int
    exit: ExitStatus
    crash_class: str
    signature: str
    log_tail_offset: int
    restarted_as: int
    restart_in_ms: int
    pid: int
    started_at_ms: int
    ticket: str
    nonce: str
    def __init__(self, instance_id: _Optional[str] = ..., group: _Optional[str] = ..., exit_code: _Optional[int] = ..., log_tail: _Optional[_Iterable[str]] = ..., uptime_ms: _Optional[int] = ..., incarnation: _Optional[int] = ..., exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., crash_class: _Optional[str] = ..., signature: _Optional[str] = ..., log_tail_offset: _Optional[int] = ..., restarted_as: _Optional[int] = ..., restart_in_ms: _Optional[int] = ..., pid: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., ticket: _Optional[str] = ..., nonce: _Optional[str] = ...) -> None: ...

class ConsoleOutput(_message.Message):
    __slots__ = ("instance_id", "line", "timestamp_ms", "incarnation", "offset")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    line: str
    timestamp_ms: int
    incarnation: int
    offset: int
    def __init__(self, instance_id: _Optional[str] = ..., line: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., incarnation: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ConsoleBatch(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[ConsoleBlock]
    def __init__(self, blocks: _Optional[_Iterable[_Union[ConsoleBlock, _Mapping]]] = ...) -> None: ...

class ConsoleBlock(_message.Message):
    __slots__ = ("instance_id", "incarnation", "offset", "data", "times", "gaps", "nonce")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    incarnation: int
    offset: int
    data: bytes
    times: _containers.RepeatedCompositeFieldContainer[ConsoleTime]
    gaps: _containers.RepeatedCompositeFieldContainer[ConsoleGap]
    nonce: str
    def __init__(self, instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., times: _Optional[_Iterable[_Union[ConsoleTime, _Mapping]]] = ..., gaps: _Optional[_Iterable[_Union[ConsoleGap, _Mapping]]] = ..., nonce: _Optional[str] = ...) -> None: ...

class ConsoleTime(_message.Message):
    __slots__ = ("offset", "timestamp_ms")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ConsoleGap(_message.Message):
    __slots__ = ("from_offset", "to_offset", "reason")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    to_offset: int
    reason: str
    def __init__(self, from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ConsoleAck(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[ConsolePosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[ConsolePosition, _Mapping]]] = ...) -> None: ...

class ConsolePosition(_message.Message):
    __slots__ = ("instance_id", "incarnation", "offset", "watched", "nonce")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    incarnation: int
    offset: int
    watched: bool
    nonce: str
    def __init__(self, instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., offset: _Optional[int] = ..., watched: _Optional[bool] = ..., nonce: _Optional[str] = ...) -> None: ...

class ConsoleQuery(_message.Message):
    __slots__ = ("request_id", "instance_id", "incarnation", "from_offset", "to_offset", "max_bytes", "pattern", "max_lines", "newest", "runs", "after_run", "before_run", "since_ms", "until_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    MAX_LINES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    AFTER_RUN_FIELD_NUMBER: _ClassVar[int]
    BEFORE_RUN_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    instance_id: str
    incarnation: int
    from_offset: int
    to_offset: int
    max_bytes: int
    pattern: str
    max_lines: int
    newest: bool
    runs: bool
    after_run: int
    before_run: int
    since_ms: int
    until_ms: int
    def __init__(self, request_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., pattern: _Optional[str] = ..., max_lines: _Optional[int] = ..., newest: _Optional[bool] = ..., runs: _Optional[bool] = ..., after_run: _Optional[int] = ..., before_run: _Optional[int] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ConsoleQueryResult(_message.Message):
    __slots__ = ("blocks", "gaps", "first_offset", "end_offset", "next_offset", "runs", "more_runs")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MORE_RUNS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[ConsoleBlock]
    gaps: _containers.RepeatedCompositeFieldContainer[ConsoleGap]
    first_offset: int
    end_offset: int
    next_offset: int
    runs: _containers.RepeatedCompositeFieldContainer[InstanceRun]
    more_runs: bool
    def __init__(self, blocks: _Optional[_Iterable[_Union[ConsoleBlock, _Mapping]]] = ..., gaps: _Optional[_Iterable[_Union[ConsoleGap, _Mapping]]] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[InstanceRun, _Mapping]]] = ..., more_runs: _Optional[bool] = ...) -> None: ...

class InstanceRun(_message.Message):
    __slots__ = ("incarnation", "plan_hash", "accepted_at_ms", "started_at_ms", "ended_at_ms", "exit", "crashed", "first_offset", "end_offset", "nonce")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CRASHED_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    plan_hash: str
    accepted_at_ms: int
    started_at_ms: int
    ended_at_ms: int
    exit: ExitStatus
    crashed: bool
    first_offset: int
    end_offset: int
    nonce: str
    def __init__(self, incarnation: _Optional[int] = ..., plan_hash: _Optional[str] = ..., accepted_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., exit: _Optional[_Union[ExitStatus, _Mapping]] = ..., crashed: _Optional[bool] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class ConsoleQueryFailed(_message.Message):
    __slots__ = ("request_id", "error_code", "error_message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error_code: str
    error_message: str
    def __init__(self, request_id: _Optional[str] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class WorkloadReport(_message.Message):
    __slots__ = ("instance_id", "incarnation", "ready", "players_known", "player_count", "max_players", "not_ready")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PLAYERS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    PLAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_PLAYERS_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    incarnation: int
    ready: bool
    players_known: bool
    player_count: int
    max_players: int
    not_ready: bool
    def __init__(self, instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., ready: _Optional[bool] = ..., players_known: _Optional[bool] = ..., player_count: _Optional[int] = ..., max_players: _Optional[int] = ..., not_ready: _Optional[bool] = ...) -> None: ...

class SaveFiles(_message.Message):
    __slots__ = ("request_id", "instance_id", "incarnation", "paths", "max_bytes", "max_files", "secret_names")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_FILES_FIELD_NUMBER: _ClassVar[int]
    SECRET_NAMES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    instance_id: str
    incarnation: int
    paths: _containers.RepeatedScalarFieldContainer[str]
    max_bytes: int
    max_files: int
    secret_names: bool
    def __init__(self, request_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., paths: _Optional[_Iterable[str]] = ..., max_bytes: _Optional[int] = ..., max_files: _Optional[int] = ..., secret_names: _Optional[bool] = ...) -> None: ...

class SaveFilesFailed(_message.Message):
    __slots__ = ("request_id", "error_code", "error_message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error_code: str
    error_message: str
    def __init__(self, request_id: _Optional[str] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class WalkInstanceFiles(_message.Message):
    __slots__ = ("request_id", "group", "instance_id", "max_entries", "max_depth", "summarize_threshold", "path", "after", "digest_bytes", "itself", "world")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    SUMMARIZE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    ITSELF_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    group: str
    instance_id: str
    max_entries: int
    max_depth: int
    summarize_threshold: int
    path: str
    after: bytes
    digest_bytes: int
    itself: bool
    world: bool
    def __init__(self, request_id: _Optional[str] = ..., group: _Optional[str] = ..., instance_id: _Optional[str] = ..., max_entries: _Optional[int] = ..., max_depth: _Optional[int] = ..., summarize_threshold: _Optional[int] = ..., path: _Optional[str] = ..., after: _Optional[bytes] = ..., digest_bytes: _Optional[int] = ..., itself: _Optional[bool] = ..., world: _Optional[bool] = ...) -> None: ...

class FileEntry(_message.Message):
    __slots__ = ("path", "size_bytes", "is_dir", "modified_at_ms", "summary", "child_count", "kind", "mode", "sha256", "binary")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_DIR_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CHILD_COUNT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    is_dir: bool
    modified_at_ms: int
    summary: bool
    child_count: int
    kind: str
    mode: int
    sha256: str
    binary: bool
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., is_dir: _Optional[bool] = ..., modified_at_ms: _Optional[int] = ..., summary: _Optional[bool] = ..., child_count: _Optional[int] = ..., kind: _Optional[str] = ..., mode: _Optional[int] = ..., sha256: _Optional[str] = ..., binary: _Optional[bool] = ...) -> None: ...

class InstanceFileTree(_message.Message):
    __slots__ = ("request_id", "entries", "truncated", "error", "next")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    entries: _containers.RepeatedCompositeFieldContainer[FileEntry]
    truncated: bool
    error: str
    next: bytes
    def __init__(self, request_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[FileEntry, _Mapping]]] = ..., truncated: _Optional[bool] = ..., error: _Optional[str] = ..., next: _Optional[bytes] = ...) -> None: ...

class ReadInstanceFile(_message.Message):
    __slots__ = ("request_id", "group", "instance_id", "path", "max_bytes", "tail", "offset", "world")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    group: str
    instance_id: str
    path: str
    max_bytes: int
    tail: bool
    offset: int
    world: bool
    def __init__(self, request_id: _Optional[str] = ..., group: _Optional[str] = ..., instance_id: _Optional[str] = ..., path: _Optional[str] = ..., max_bytes: _Optional[int] = ..., tail: _Optional[bool] = ..., offset: _Optional[int] = ..., world: _Optional[bool] = ...) -> None: ...

class InstanceFileContent(_message.Message):
    __slots__ = ("request_id", "content", "total_size_bytes", "truncated", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    content: bytes
    total_size_bytes: int
    truncated: bool
    error: str
    def __init__(self, request_id: _Optional[str] = ..., content: _Optional[bytes] = ..., total_size_bytes: _Optional[int] = ..., truncated: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class ChangeInstanceFiles(_message.Message):
    __slots__ = ("request_id", "group", "instance_id", "verb", "path", "target", "size_bytes", "sha256", "content", "if_digests", "must_exist", "must_be_absent", "recursive", "replace", "max_bytes", "max_entries", "mode", "world", "change_id", "repeated")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IF_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    MUST_EXIST_FIELD_NUMBER: _ClassVar[int]
    MUST_BE_ABSENT_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    group: str
    instance_id: str
    verb: str
    path: str
    target: str
    size_bytes: int
    sha256: str
    content: bytes
    if_digests: _containers.RepeatedScalarFieldContainer[str]
    must_exist: bool
    must_be_absent: bool
    recursive: bool
    replace: bool
    max_bytes: int
    max_entries: int
    mode: int
    world: bool
    change_id: str
    repeated: bool
    def __init__(self, request_id: _Optional[str] = ..., group: _Optional[str] = ..., instance_id: _Optional[str] = ..., verb: _Optional[str] = ..., path: _Optional[str] = ..., target: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., content: _Optional[bytes] = ..., if_digests: _Optional[_Iterable[str]] = ..., must_exist: _Optional[bool] = ..., must_be_absent: _Optional[bool] = ..., recursive: _Optional[bool] = ..., replace: _Optional[bool] = ..., max_bytes: _Optional[int] = ..., max_entries: _Optional[int] = ..., mode: _Optional[int] = ..., world: _Optional[bool] = ..., change_id: _Optional[str] = ..., repeated: _Optional[bool] = ...) -> None: ...

class SendInstanceFile(_message.Message):
    __slots__ = ("request_id", "group", "instance_id", "path", "offset", "length", "archive", "max_bytes", "max_files", "world")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_FILES_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    group: str
    instance_id: str
    path: str
    offset: int
    length: int
    archive: bool
    max_bytes: int
    max_files: int
    world: bool
    def __init__(self, request_id: _Optional[str] = ..., group: _Optional[str] = ..., instance_id: _Optional[str] = ..., path: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., archive: _Optional[bool] = ..., max_bytes: _Optional[int] = ..., max_files: _Optional[int] = ..., world: _Optional[bool] = ...) -> None: ...

class InstanceFilesAnswer(_message.Message):
    __slots__ = ("request_id", "error", "sha256", "former_sha256", "size_bytes", "entries", "unchanged")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FORMER_SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error: str
    sha256: str
    former_sha256: str
    size_bytes: int
    entries: int
    unchanged: bool
    def __init__(self, request_id: _Optional[str] = ..., error: _Optional[str] = ..., sha256: _Optional[str] = ..., former_sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., entries: _Optional[int] = ..., unchanged: _Optional[bool] = ...) -> None: ...
