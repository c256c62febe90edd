from corral.wire.v1 import instance_pb2 as _instance_pb2
from corral.wire.v1 import module_pb2 as _module_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShutdownMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHUTDOWN_MODE_UNSPECIFIED: _ClassVar[ShutdownMode]
    SHUTDOWN_MODE_ANNOUNCE: _ClassVar[ShutdownMode]
    SHUTDOWN_MODE_STOP: _ClassVar[ShutdownMode]
    SHUTDOWN_MODE_EXIT: _ClassVar[ShutdownMode]
    SHUTDOWN_MODE_RESUME: _ClassVar[ShutdownMode]
SHUTDOWN_MODE_UNSPECIFIED: ShutdownMode
SHUTDOWN_MODE_ANNOUNCE: ShutdownMode
SHUTDOWN_MODE_STOP: ShutdownMode
SHUTDOWN_MODE_EXIT: ShutdownMode
SHUTDOWN_MODE_RESUME: ShutdownMode

class Handshake(_message.Message):
    __slots__ = ("node_id", "version", "total_memory_mb", "available_cpus", "labels", "running_instances", "advertise_address", "host_info", "protocol_version", "features", "machine_id", "boot_id", "known_epoch", "spool_id", "modules", "runtimes", "run_id", "connection_generation", "spool_head", "capabilities", "portions_follow", "spool_confirmed", "worlds", "static_directory", "reconnect_max_ms")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_CPUS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    ADVERTISE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_INFO_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPOOL_ID_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_GENERATION_FIELD_NUMBER: _ClassVar[int]
    SPOOL_HEAD_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    PORTIONS_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SPOOL_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    WORLDS_FIELD_NUMBER: _ClassVar[int]
    STATIC_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    version: str
    total_memory_mb: int
    available_cpus: int
    labels: _containers.ScalarMap[str, str]
    running_instances: _containers.RepeatedCompositeFieldContainer[_instance_pb2.RunningInstance]
    advertise_address: str
    host_info: HostInfo
    protocol_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    machine_id: str
    boot_id: str
    known_epoch: int
    spool_id: str
    modules: _containers.RepeatedCompositeFieldContainer[_module_pb2.ModuleSetEntry]
    runtimes: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    connection_generation: int
    spool_head: int
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    portions_follow: bool
    spool_confirmed: int
    worlds: _containers.RepeatedScalarFieldContainer[str]
    static_directory: str
    reconnect_max_ms: int
    def __init__(self, node_id: _Optional[str] = ..., version: _Optional[str] = ..., total_memory_mb: _Optional[int] = ..., available_cpus: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., running_instances: _Optional[_Iterable[_Union[_instance_pb2.RunningInstance, _Mapping]]] = ..., advertise_address: _Optional[str] = ..., host_info: _Optional[_Union[HostInfo, _Mapping]] = ..., protocol_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., machine_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., known_epoch: _Optional[int] = ..., spool_id: _Optional[str] = ..., modules: _Optional[_Iterable[_Union[_module_pb2.ModuleSetEntry, _Mapping]]] = ..., runtimes: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ..., connection_generation: _Optional[int] = ..., spool_head: _Optional[int] = ..., capabilities: _Optional[_Iterable[str]] = ..., portions_follow: _Optional[bool] = ..., spool_confirmed: _Optional[int] = ..., worlds: _Optional[_Iterable[str]] = ..., static_directory: _Optional[str] = ..., reconnect_max_ms: _Optional[int] = ...) -> None: ...

class HandshakeAck(_message.Message):
    __slots__ = ("session_id", "heartbeat_interval_ms", "controller_api_port", "protocol_version", "protocol_compatible", "leader_grpc_addr", "epoch", "controller_grpc_addrs", "features", "spool_confirmed", "modules", "trusted_ca_pem", "log_level", "consoles", "event_head", "known_runs")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_API_PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_COMPATIBLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_GRPC_ADDR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_GRPC_ADDRS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SPOOL_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_CA_PEM_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONSOLES_FIELD_NUMBER: _ClassVar[int]
    EVENT_HEAD_FIELD_NUMBER: _ClassVar[int]
    KNOWN_RUNS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    heartbeat_interval_ms: int
    controller_api_port: int
    protocol_version: int
    protocol_compatible: bool
    leader_grpc_addr: str
    epoch: int
    controller_grpc_addrs: _containers.RepeatedScalarFieldContainer[str]
    features: _containers.RepeatedScalarFieldContainer[str]
    spool_confirmed: int
    modules: _containers.RepeatedCompositeFieldContainer[_module_pb2.ModuleSetEntry]
    trusted_ca_pem: bytes
    log_level: str
    consoles: _containers.RepeatedCompositeFieldContainer[_instance_pb2.ConsolePosition]
    event_head: _module_pb2.EventCursor
    known_runs: _containers.RepeatedCompositeFieldContainer[_instance_pb2.RunName]
    def __init__(self, session_id: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ..., controller_api_port: _Optional[int] = ..., protocol_version: _Optional[int] = ..., protocol_compatible: _Optional[bool] = ..., leader_grpc_addr: _Optional[str] = ..., epoch: _Optional[int] = ..., controller_grpc_addrs: _Optional[_Iterable[str]] = ..., features: _Optional[_Iterable[str]] = ..., spool_confirmed: _Optional[int] = ..., modules: _Optional[_Iterable[_Union[_module_pb2.ModuleSetEntry, _Mapping]]] = ..., trusted_ca_pem: _Optional[bytes] = ..., log_level: _Optional[str] = ..., consoles: _Optional[_Iterable[_Union[_instance_pb2.ConsolePosition, _Mapping]]] = ..., event_head: _Optional[_Union[_module_pb2.EventCursor, _Mapping]] = ..., known_runs: _Optional[_Iterable[_Union[_instance_pb2.RunName, _Mapping]]] = ...) -> None: ...

class HostInfo(_message.Message):
    __slots__ = ("os_name", "os_version", "arch", "cpu_model", "cpu_physical_cores", "cpu_logical_cores", "cpu_max_freq_hz", "java_version", "java_vendor", "java_runtime", "java_gc")
    OS_NAME_FIELD_NUMBER: _ClassVar[int]
    OS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    CPU_MODEL_FIELD_NUMBER: _ClassVar[int]
    CPU_PHYSICAL_CORES_FIELD_NUMBER: _ClassVar[int]
    CPU_LOGICAL_CORES_FIELD_NUMBER: _ClassVar[int]
    CPU_MAX_FREQ_HZ_FIELD_NUMBER: _ClassVar[int]
    JAVA_VERSION_FIELD_NUMBER: _ClassVar[int]
    JAVA_VENDOR_FIELD_NUMBER: _ClassVar[int]
    JAVA_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    JAVA_GC_FIELD_NUMBER: _ClassVar[int]
    os_name: str
    os_version: str
    arch: str
    cpu_model: str
    cpu_physical_cores: int
    cpu_logical_cores: int
    cpu_max_freq_hz: int
    java_version: str
    java_vendor: str
    java_runtime: str
    java_gc: str
    def __init__(self, os_name: _Optional[str] = ..., os_version: _Optional[str] = ..., arch: _Optional[str] = ..., cpu_model: _Optional[str] = ..., cpu_physical_cores: _Optional[int] = ..., cpu_logical_cores: _Optional[int] = ..., cpu_max_freq_hz: _Optional[int] = ..., java_version: _Optional[str] = ..., java_vendor: _Optional[str] = ..., java_runtime: _Optional[str] = ..., java_gc: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("cpu_usage", "total_memory_mb", "used_memory_mb", "free_disk_mb", "instance_count", "used_ports", "total_disk_mb")
    CPU_USAGE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    USED_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    FREE_DISK_MB_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    USED_PORTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DISK_MB_FIELD_NUMBER: _ClassVar[int]
    cpu_usage: float
    total_memory_mb: int
    used_memory_mb: int
    free_disk_mb: int
    instance_count: int
    used_ports: _containers.RepeatedScalarFieldContainer[int]
    total_disk_mb: int
    def __init__(self, cpu_usage: _Optional[float] = ..., total_memory_mb: _Optional[int] = ..., used_memory_mb: _Optional[int] = ..., free_disk_mb: _Optional[int] = ..., instance_count: _Optional[int] = ..., used_ports: _Optional[_Iterable[int]] = ..., total_disk_mb: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class DaemonLogRecord(_message.Message):
    __slots__ = ("timestamp_ms", "level", "logger", "thread", "message", "throwable", "mdc", "dropped_before")
    class MdcEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROWABLE_FIELD_NUMBER: _ClassVar[int]
    MDC_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    level: str
    logger: str
    thread: str
    message: str
    throwable: str
    mdc: _containers.ScalarMap[str, str]
    dropped_before: int
    def __init__(self, timestamp_ms: _Optional[int] = ..., level: _Optional[str] = ..., logger: _Optional[str] = ..., thread: _Optional[str] = ..., message: _Optional[str] = ..., throwable: _Optional[str] = ..., mdc: _Optional[_Mapping[str, str]] = ..., dropped_before: _Optional[int] = ...) -> None: ...

class SetLogLevel(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: str
    def __init__(self, level: _Optional[str] = ...) -> None: ...

class ShutdownNode(_message.Message):
    __slots__ = ("reason", "mode", "drain_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    mode: ShutdownMode
    drain_id: str
    def __init__(self, reason: _Optional[str] = ..., mode: _Optional[_Union[ShutdownMode, str]] = ..., drain_id: _Optional[str] = ...) -> None: ...

class ShutdownNodeAck(_message.Message):
    __slots__ = ("running_instances", "estimated_drain_seconds", "mode", "drain_id", "done")
    RUNNING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    running_instances: int
    estimated_drain_seconds: int
    mode: ShutdownMode
    drain_id: str
    done: bool
    def __init__(self, running_instances: _Optional[int] = ..., estimated_drain_seconds: _Optional[int] = ..., mode: _Optional[_Union[ShutdownMode, str]] = ..., drain_id: _Optional[str] = ..., done: _Optional[bool] = ...) -> None: ...

class ErrorReport(_message.Message):
    __slots__ = ("error_code", "error_message", "context", "retry_after_seconds")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    error_message: str
    context: str
    retry_after_seconds: int
    def __init__(self, error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., context: _Optional[str] = ..., retry_after_seconds: _Optional[int] = ...) -> None: ...

class HandshakePortion(_message.Message):
    __slots__ = ("running_instances", "last")
    RUNNING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    running_instances: _containers.RepeatedCompositeFieldContainer[_instance_pb2.RunningInstance]
    last: bool
    def __init__(self, running_instances: _Optional[_Iterable[_Union[_instance_pb2.RunningInstance, _Mapping]]] = ..., last: _Optional[bool] = ...) -> None: ...

class CertificateRequest(_message.Message):
    __slots__ = ("csr_pem",)
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    csr_pem: bytes
    def __init__(self, csr_pem: _Optional[bytes] = ...) -> None: ...

class CertificateIssued(_message.Message):
    __slots__ = ("certificate_pem", "trusted_ca_pem")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_CA_PEM_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    trusted_ca_pem: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ..., trusted_ca_pem: _Optional[bytes] = ...) -> None: ...

class SpoolAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class NodeCommand(_message.Message):
    __slots__ = ("request_id", "words")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    words: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., words: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeCommandResult(_message.Message):
    __slots__ = ("request_id", "lines", "error_code", "error_message", "error_hint")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_HINT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    error_code: str
    error_message: str
    error_hint: str
    def __init__(self, request_id: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., error_hint: _Optional[str] = ...) -> None: ...
