from corral.wire.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModuleIntent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODULE_INTENT_UNSPECIFIED: _ClassVar[ModuleIntent]
    MODULE_INTENT_ACTIVE: _ClassVar[ModuleIntent]
    MODULE_INTENT_INACTIVE: _ClassVar[ModuleIntent]
    MODULE_INTENT_PAUSED: _ClassVar[ModuleIntent]
MODULE_INTENT_UNSPECIFIED: ModuleIntent
MODULE_INTENT_ACTIVE: ModuleIntent
MODULE_INTENT_INACTIVE: ModuleIntent
MODULE_INTENT_PAUSED: ModuleIntent

class ModuleInstall(_message.Message):
    __slots__ = ("module_id", "version", "sha256", "jar_bytes", "signature_bytes", "signature_kind", "manifest_yaml", "is_upgrade", "previous_version", "offer", "intent", "settings_json", "again", "paused_reason", "reload_ms", "recover_ms")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    JAR_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_KIND_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_YAML_FIELD_NUMBER: _ClassVar[int]
    IS_UPGRADE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    PAUSED_REASON_FIELD_NUMBER: _ClassVar[int]
    RELOAD_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVER_MS_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    version: str
    sha256: str
    jar_bytes: bytes
    signature_bytes: bytes
    signature_kind: str
    manifest_yaml: str
    is_upgrade: bool
    previous_version: str
    offer: _plan_pb2.DataOffer
    intent: ModuleIntent
    settings_json: bytes
    again: bool
    paused_reason: str
    reload_ms: int
    recover_ms: int
    def __init__(self, module_id: _Optional[str] = ..., version: _Optional[str] = ..., sha256: _Optional[str] = ..., jar_bytes: _Optional[bytes] = ..., signature_bytes: _Optional[bytes] = ..., signature_kind: _Optional[str] = ..., manifest_yaml: _Optional[str] = ..., is_upgrade: _Optional[bool] = ..., previous_version: _Optional[str] = ..., offer: _Optional[_Union[_plan_pb2.DataOffer, _Mapping]] = ..., intent: _Optional[_Union[ModuleIntent, str]] = ..., settings_json: _Optional[bytes] = ..., again: _Optional[bool] = ..., paused_reason: _Optional[str] = ..., reload_ms: _Optional[int] = ..., recover_ms: _Optional[int] = ...) -> None: ...

class ModuleUninstall(_message.Message):
    __slots__ = ("module_id",)
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    def __init__(self, module_id: _Optional[str] = ...) -> None: ...

class ModuleControl(_message.Message):
    __slots__ = ("module_id", "intent", "reason", "recover", "reload", "settings_json", "reload_ms", "recover_ms")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    RELOAD_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVER_MS_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    intent: ModuleIntent
    reason: str
    recover: bool
    reload: bool
    settings_json: bytes
    reload_ms: int
    recover_ms: int
    def __init__(self, module_id: _Optional[str] = ..., intent: _Optional[_Union[ModuleIntent, str]] = ..., reason: _Optional[str] = ..., recover: _Optional[bool] = ..., reload: _Optional[bool] = ..., settings_json: _Optional[bytes] = ..., reload_ms: _Optional[int] = ..., recover_ms: _Optional[int] = ...) -> None: ...

class ModuleStateUpdate(_message.Message):
    __slots__ = ("module_id", "state", "last_error", "updated_at_ms", "version", "sha256", "from_state", "reason", "intent", "refused_sha256", "fetched_bytes", "size_bytes", "reload_ms", "recover_ms", "signature_sha256", "refused_signature_sha256")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FROM_STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SHA256_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RELOAD_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVER_MS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_SHA256_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SIGNATURE_SHA256_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    state: str
    last_error: str
    updated_at_ms: int
    version: str
    sha256: str
    from_state: str
    reason: str
    intent: ModuleIntent
    refused_sha256: str
    fetched_bytes: int
    size_bytes: int
    reload_ms: int
    recover_ms: int
    signature_sha256: str
    refused_signature_sha256: str
    def __init__(self, module_id: _Optional[str] = ..., state: _Optional[str] = ..., last_error: _Optional[str] = ..., updated_at_ms: _Optional[int] = ..., version: _Optional[str] = ..., sha256: _Optional[str] = ..., from_state: _Optional[str] = ..., reason: _Optional[str] = ..., intent: _Optional[_Union[ModuleIntent, str]] = ..., refused_sha256: _Optional[str] = ..., fetched_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ..., reload_ms: _Optional[int] = ..., recover_ms: _Optional[int] = ..., signature_sha256: _Optional[str] = ..., refused_signature_sha256: _Optional[str] = ...) -> None: ...

class ModuleSetEntry(_message.Message):
    __slots__ = ("module_id", "sha256", "intent", "version", "settings_sha256", "refused_sha256", "state", "reason", "last_error", "updated_at_ms", "signature_sha256", "refused_signature_sha256", "reload_ms", "recover_ms", "paused_reason")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_SHA256_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SHA256_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_SHA256_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SIGNATURE_SHA256_FIELD_NUMBER: _ClassVar[int]
    RELOAD_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVER_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_REASON_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    sha256: str
    intent: ModuleIntent
    version: str
    settings_sha256: str
    refused_sha256: str
    state: str
    reason: str
    last_error: str
    updated_at_ms: int
    signature_sha256: str
    refused_signature_sha256: str
    reload_ms: int
    recover_ms: int
    paused_reason: str
    def __init__(self, module_id: _Optional[str] = ..., sha256: _Optional[str] = ..., intent: _Optional[_Union[ModuleIntent, str]] = ..., version: _Optional[str] = ..., settings_sha256: _Optional[str] = ..., refused_sha256: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., last_error: _Optional[str] = ..., updated_at_ms: _Optional[int] = ..., signature_sha256: _Optional[str] = ..., refused_signature_sha256: _Optional[str] = ..., reload_ms: _Optional[int] = ..., recover_ms: _Optional[int] = ..., paused_reason: _Optional[str] = ...) -> None: ...

class EventSubscribe(_message.Message):
    __slots__ = ("event_types", "after")
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    event_types: _containers.RepeatedScalarFieldContainer[str]
    after: EventCursor
    def __init__(self, event_types: _Optional[_Iterable[str]] = ..., after: _Optional[_Union[EventCursor, _Mapping]] = ...) -> None: ...

class EventUnsubscribe(_message.Message):
    __slots__ = ("event_types",)
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    event_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, event_types: _Optional[_Iterable[str]] = ...) -> None: ...

class EventCursor(_message.Message):
    __slots__ = ("epoch", "sequence")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sequence: int
    def __init__(self, epoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class ModuleEvent(_message.Message):
    __slots__ = ("event_type", "payload_json", "cursor", "missed")
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    event_type: str
    payload_json: bytes
    cursor: EventCursor
    missed: bool
    def __init__(self, event_type: _Optional[str] = ..., payload_json: _Optional[bytes] = ..., cursor: _Optional[_Union[EventCursor, _Mapping]] = ..., missed: _Optional[bool] = ...) -> None: ...

class EventPublish(_message.Message):
    __slots__ = ("event_type", "payload_json", "module_id", "subject", "published_at_ms")
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    event_type: str
    payload_json: bytes
    module_id: str
    subject: str
    published_at_ms: int
    def __init__(self, event_type: _Optional[str] = ..., payload_json: _Optional[bytes] = ..., module_id: _Optional[str] = ..., subject: _Optional[str] = ..., published_at_ms: _Optional[int] = ...) -> None: ...

class CapabilityCall(_message.Message):
    __slots__ = ("call_id", "capability_id", "method", "arguments_msgpack", "deadline_ms", "module_id")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_MSGPACK_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    capability_id: str
    method: str
    arguments_msgpack: bytes
    deadline_ms: int
    module_id: str
    def __init__(self, call_id: _Optional[str] = ..., capability_id: _Optional[str] = ..., method: _Optional[str] = ..., arguments_msgpack: _Optional[bytes] = ..., deadline_ms: _Optional[int] = ..., module_id: _Optional[str] = ...) -> None: ...

class CapabilityResult(_message.Message):
    __slots__ = ("call_id", "result_msgpack", "error_code", "error_message")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_MSGPACK_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    result_msgpack: bytes
    error_code: str
    error_message: str
    def __init__(self, call_id: _Optional[str] = ..., result_msgpack: _Optional[bytes] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class CapabilityOffers(_message.Message):
    __slots__ = ("offers",)
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    offers: _containers.RepeatedCompositeFieldContainer[CapabilityOffer]
    def __init__(self, offers: _Optional[_Iterable[_Union[CapabilityOffer, _Mapping]]] = ...) -> None: ...

class CapabilityOffer(_message.Message):
    __slots__ = ("capability_id", "version", "provider", "deprecated")
    CAPABILITY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DEPRECATED_FIELD_NUMBER: _ClassVar[int]
    capability_id: str
    version: str
    provider: str
    deprecated: bool
    def __init__(self, capability_id: _Optional[str] = ..., version: _Optional[str] = ..., provider: _Optional[str] = ..., deprecated: _Optional[bool] = ...) -> None: ...

class ModuleMetrics(_message.Message):
    __slots__ = ("families",)
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    families: _containers.RepeatedCompositeFieldContainer[ModuleMetricFamily]
    def __init__(self, families: _Optional[_Iterable[_Union[ModuleMetricFamily, _Mapping]]] = ...) -> None: ...

class ModuleMetricFamily(_message.Message):
    __slots__ = ("module_id", "name", "kind", "help", "samples")
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HELP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    module_id: str
    name: str
    kind: str
    help: str
    samples: _containers.RepeatedCompositeFieldContainer[ModuleMetricSample]
    def __init__(self, module_id: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., help: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[ModuleMetricSample, _Mapping]]] = ...) -> None: ...

class ModuleMetricSample(_message.Message):
    __slots__ = ("labels", "value", "buckets")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    value: float
    buckets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., value: _Optional[float] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...
