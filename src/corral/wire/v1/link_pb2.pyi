from corral.wire.v1 import instance_pb2 as _instance_pb2
from corral.wire.v1 import module_pb2 as _module_pb2
from corral.wire.v1 import node_pb2 as _node_pb2
from corral.wire.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DaemonMessage(_message.Message):
    __slots__ = ("handshake", "node_status", "instance_status", "console_output", "crash_report", "pong", "template_request", "cache_status", "error_report", "shutdown_node_ack", "start_instance_ack", "stop_instance_ack", "daemon_log_record", "module_state_update", "event_subscribe", "event_unsubscribe", "instance_file_tree", "instance_file_content", "batch", "certificate_request", "console_batch", "event_publish", "capability_call", "capability_result", "send_command_ack", "console_query_failed", "save_files_failed", "module_metrics", "handshake_portion", "run_ends", "ping", "instance_files_answer", "node_command_result", "spool_sequence", "cause")
    HANDSHAKE_FIELD_NUMBER: _ClassVar[int]
    NODE_STATUS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_STATUS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CRASH_REPORT_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CACHE_STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_REPORT_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_NODE_ACK_FIELD_NUMBER: _ClassVar[int]
    START_INSTANCE_ACK_FIELD_NUMBER: _ClassVar[int]
    STOP_INSTANCE_ACK_FIELD_NUMBER: _ClassVar[int]
    DAEMON_LOG_RECORD_FIELD_NUMBER: _ClassVar[int]
    MODULE_STATE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    EVENT_SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    EVENT_UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FILE_TREE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FILE_CONTENT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_BATCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_PUBLISH_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_CALL_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_RESULT_FIELD_NUMBER: _ClassVar[int]
    SEND_COMMAND_ACK_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_QUERY_FAILED_FIELD_NUMBER: _ClassVar[int]
    SAVE_FILES_FAILED_FIELD_NUMBER: _ClassVar[int]
    MODULE_METRICS_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_PORTION_FIELD_NUMBER: _ClassVar[int]
    RUN_ENDS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FILES_ANSWER_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_RESULT_FIELD_NUMBER: _ClassVar[int]
    SPOOL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    handshake: _node_pb2.Handshake
    node_status: _node_pb2.NodeStatus
    instance_status: _instance_pb2.InstanceStatusUpdate
    console_output: _instance_pb2.ConsoleOutput
    crash_report: _instance_pb2.CrashReport
    pong: _node_pb2.Pong
    template_request: _plan_pb2.TemplateRequest
    cache_status: _plan_pb2.CacheStatus
    error_report: _node_pb2.ErrorReport
    shutdown_node_ack: _node_pb2.ShutdownNodeAck
    start_instance_ack: _instance_pb2.StartInstanceAck
    stop_instance_ack: _instance_pb2.StopInstanceAck
    daemon_log_record: _node_pb2.DaemonLogRecord
    module_state_update: _module_pb2.ModuleStateUpdate
    event_subscribe: _module_pb2.EventSubscribe
    event_unsubscribe: _module_pb2.EventUnsubscribe
    instance_file_tree: _instance_pb2.InstanceFileTree
    instance_file_content: _instance_pb2.InstanceFileContent
    batch: DaemonBatch
    certificate_request: _node_pb2.CertificateRequest
    console_batch: _instance_pb2.ConsoleBatch
    event_publish: _module_pb2.EventPublish
    capability_call: _module_pb2.CapabilityCall
    capability_result: _module_pb2.CapabilityResult
    send_command_ack: _instance_pb2.SendCommandAck
    console_query_failed: _instance_pb2.ConsoleQueryFailed
    save_files_failed: _instance_pb2.SaveFilesFailed
    module_metrics: _module_pb2.ModuleMetrics
    handshake_portion: _node_pb2.HandshakePortion
    run_ends: _instance_pb2.RunEnds
    ping: _node_pb2.Ping
    instance_files_answer: _instance_pb2.InstanceFilesAnswer
    node_command_result: _node_pb2.NodeCommandResult
    spool_sequence: int
    cause: str
    def __init__(self, handshake: _Optional[_Union[_node_pb2.Handshake, _Mapping]] = ..., node_status: _Optional[_Union[_node_pb2.NodeStatus, _Mapping]] = ..., instance_status: _Optional[_Union[_instance_pb2.InstanceStatusUpdate, _Mapping]] = ..., console_output: _Optional[_Union[_instance_pb2.ConsoleOutput, _Mapping]] = ..., crash_report: _Optional[_Union[_instance_pb2.CrashReport, _Mapping]] = ..., pong: _Optional[_Union[_node_pb2.Pong, _Mapping]] = ..., template_request: _Optional[_Union[_plan_pb2.TemplateRequest, _Mapping]] = ..., cache_status: _Optional[_Union[_plan_pb2.CacheStatus, _Mapping]] = ..., error_report: _Optional[_Union[_node_pb2.ErrorReport, _Mapping]] = ..., shutdown_node_ack: _Optional[_Union[_node_pb2.ShutdownNodeAck, _Mapping]] = ..., start_instance_ack: _Optional[_Union[_instance_pb2.StartInstanceAck, _Mapping]] = ..., stop_instance_ack: _Optional[_Union[_instance_pb2.StopInstanceAck, _Mapping]] = ..., daemon_log_record: _Optional[_Union[_node_pb2.DaemonLogRecord, _Mapping]] = ..., module_state_update: _Optional[_Union[_module_pb2.ModuleStateUpdate, _Mapping]] = ..., event_subscribe: _Optional[_Union[_module_pb2.EventSubscribe, _Mapping]] = ..., event_unsubscribe: _Optional[_Union[_module_pb2.EventUnsubscribe, _Mapping]] = ..., instance_file_tree: _Optional[_Union[_instance_pb2.InstanceFileTree, _Mapping]] = ..., instance_file_content: _Optional[_Union[_instance_pb2.InstanceFileContent, _Mapping]] = ..., batch: _Optional[_Union[DaemonBatch, _Mapping]] = ..., certificate_request: _Optional[_Union[_node_pb2.CertificateRequest, _Mapping]] = ..., console_batch: _Optional[_Union[_instance_pb2.ConsoleBatch, _Mapping]] = ..., event_publish: _Optional[_Union[_module_pb2.EventPublish, _Mapping]] = ..., capability_call: _Optional[_Union[_module_pb2.CapabilityCall, _Mapping]] = ..., capability_result: _Optional[_Union[_module_pb2.CapabilityResult, _Mapping]] = ..., send_command_ack: _Optional[_Union[_instance_pb2.SendCommandAck, _Mapping]] = ..., console_query_failed: _Optional[_Union[_instance_pb2.ConsoleQueryFailed, _Mapping]] = ..., save_files_failed: _Optional[_Union[_instance_pb2.SaveFilesFailed, _Mapping]] = ..., module_metrics: _Optional[_Union[_module_pb2.ModuleMetrics, _Mapping]] = ..., handshake_portion: _Optional[_Union[_node_pb2.HandshakePortion, _Mapping]] = ..., run_ends: _Optional[_Union[_instance_pb2.RunEnds, _Mapping]] = ..., ping: _Optional[_Union[_node_pb2.Ping, _Mapping]] = ..., instance_files_answer: _Optional[_Union[_instance_pb2.InstanceFilesAnswer, _Mapping]] = ..., node_command_result: _Optional[_Union[_node_pb2.NodeCommandResult, _Mapping]] = ..., spool_sequence: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class DaemonBatch(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DaemonMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[DaemonMessage, _Mapping]]] = ...) -> None: ...

class ControllerMessage(_message.Message):
    __slots__ = ("handshake_ack", "start_instance", "stop_instance", "send_command", "ping", "template_data", "template_up_to_date", "shutdown_node", "pre_warm_cache", "request_cache_status", "error_report", "module_install", "module_uninstall", "module_event", "walk_instance_files", "read_instance_file", "batch", "spool_ack", "certificate_issued", "module_control", "console_ack", "capability_call", "capability_result", "set_log_level", "console_query", "workload_report", "save_files", "template_unavailable", "capability_offers", "ask_run_ends", "pong", "change_instance_files", "send_instance_file", "node_command", "traceparent", "epoch", "cause")
    HANDSHAKE_ACK_FIELD_NUMBER: _ClassVar[int]
    START_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STOP_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SEND_COMMAND_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_DATA_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_UP_TO_DATE_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_NODE_FIELD_NUMBER: _ClassVar[int]
    PRE_WARM_CACHE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CACHE_STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_REPORT_FIELD_NUMBER: _ClassVar[int]
    MODULE_INSTALL_FIELD_NUMBER: _ClassVar[int]
    MODULE_UNINSTALL_FIELD_NUMBER: _ClassVar[int]
    MODULE_EVENT_FIELD_NUMBER: _ClassVar[int]
    WALK_INSTANCE_FILES_FIELD_NUMBER: _ClassVar[int]
    READ_INSTANCE_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SPOOL_ACK_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ISSUED_FIELD_NUMBER: _ClassVar[int]
    MODULE_CONTROL_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_ACK_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_CALL_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_RESULT_FIELD_NUMBER: _ClassVar[int]
    SET_LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_QUERY_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_REPORT_FIELD_NUMBER: _ClassVar[int]
    SAVE_FILES_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_OFFERS_FIELD_NUMBER: _ClassVar[int]
    ASK_RUN_ENDS_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    CHANGE_INSTANCE_FILES_FIELD_NUMBER: _ClassVar[int]
    SEND_INSTANCE_FILE_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    handshake_ack: _node_pb2.HandshakeAck
    start_instance: _instance_pb2.StartInstance
    stop_instance: _instance_pb2.StopInstance
    send_command: _instance_pb2.SendCommand
    ping: _node_pb2.Ping
    template_data: _plan_pb2.TemplateData
    template_up_to_date: _plan_pb2.TemplateUpToDate
    shutdown_node: _node_pb2.ShutdownNode
    pre_warm_cache: _plan_pb2.PreWarmCache
    request_cache_status: _plan_pb2.RequestCacheStatus
    error_report: _node_pb2.ErrorReport
    module_install: _module_pb2.ModuleInstall
    module_uninstall: _module_pb2.ModuleUninstall
    module_event: _module_pb2.ModuleEvent
    walk_instance_files: _instance_pb2.WalkInstanceFiles
    read_instance_file: _instance_pb2.ReadInstanceFile
    batch: ControllerBatch
    spool_ack: _node_pb2.SpoolAck
    certificate_issued: _node_pb2.CertificateIssued
    module_control: _module_pb2.ModuleControl
    console_ack: _instance_pb2.ConsoleAck
    capability_call: _module_pb2.CapabilityCall
    capability_result: _module_pb2.CapabilityResult
    set_log_level: _node_pb2.SetLogLevel
    console_query: _instance_pb2.ConsoleQuery
    workload_report: _instance_pb2.WorkloadReport
    save_files: _instance_pb2.SaveFiles
    template_unavailable: _plan_pb2.TemplateUnavailable
    capability_offers: _module_pb2.CapabilityOffers
    ask_run_ends: _instance_pb2.AskRunEnds
    pong: _node_pb2.Pong
    change_instance_files: _instance_pb2.ChangeInstanceFiles
    send_instance_file: _instance_pb2.SendInstanceFile
    node_command: _node_pb2.NodeCommand
    traceparent: str
    epoch: int
    cause: str
    def __init__(self, handshake_ack: _Optional[_Union[_node_pb2.HandshakeAck, _Mapping]] = ..., start_instance: _Optional[_Union[_instance_pb2.StartInstance, _Mapping]] = ..., stop_instance: _Optional[_Union[_instance_pb2.StopInstance, _Mapping]] = ..., send_command: _Optional[_Union[_instance_pb2.SendCommand, _Mapping]] = ..., ping: _Optional[_Union[_node_pb2.Ping, _Mapping]] = ..., template_data: _Optional[_Union[_plan_pb2.TemplateData, _Mapping]] = ..., template_up_to_date: _Optional[_Union[_plan_pb2.TemplateUpToDate, _Mapping]] = ..., shutdown_node: _Optional[_Union[_node_pb2.ShutdownNode, _Mapping]] = ..., pre_warm_cache: _Optional[_Union[_plan_pb2.PreWarmCache, _Mapping]] = ..., request_cache_status: _Optional[_Union[_plan_pb2.RequestCacheStatus, _Mapping]] = ..., error_report: _Optional[_Union[_node_pb2.ErrorReport, _Mapping]] = ..., module_install: _Optional[_Union[_module_pb2.ModuleInstall, _Mapping]] = ..., module_uninstall: _Optional[_Union[_module_pb2.ModuleUninstall, _Mapping]] = ..., module_event: _Optional[_Union[_module_pb2.ModuleEvent, _Mapping]] = ..., walk_instance_files: _Optional[_Union[_instance_pb2.WalkInstanceFiles, _Mapping]] = ..., read_instance_file: _Optional[_Union[_instance_pb2.ReadInstanceFile, _Mapping]] = ..., batch: _Optional[_Union[ControllerBatch, _Mapping]] = ..., spool_ack: _Optional[_Union[_node_pb2.SpoolAck, _Mapping]] = ..., certificate_issued: _Optional[_Union[_node_pb2.CertificateIssued, _Mapping]] = ..., module_control: _Optional[_Union[_module_pb2.ModuleControl, _Mapping]] = ..., console_ack: _Optional[_Union[_instance_pb2.ConsoleAck, _Mapping]] = ..., capability_call: _Optional[_Union[_module_pb2.CapabilityCall, _Mapping]] = ..., capability_result: _Optional[_Union[_module_pb2.CapabilityResult, _Mapping]] = ..., set_log_level: _Optional[_Union[_node_pb2.SetLogLevel, _Mapping]] = ..., console_query: _Optional[_Union[_instance_pb2.ConsoleQuery, _Mapping]] = ..., workload_report: _Optional[_Union[_instance_pb2.WorkloadReport, _Mapping]] = ..., save_files: _Optional[_Union[_instance_pb2.SaveFiles, _Mapping]] = ..., template_unavailable: _Optional[_Union[_plan_pb2.TemplateUnavailable, _Mapping]] = ..., capability_offers: _Optional[_Union[_module_pb2.CapabilityOffers, _Mapping]] = ..., ask_run_ends: _Optional[_Union[_instance_pb2.AskRunEnds, _Mapping]] = ..., pong: _Optional[_Union[_node_pb2.Pong, _Mapping]] = ..., change_instance_files: _Optional[_Union[_instance_pb2.ChangeInstanceFiles, _Mapping]] = ..., send_instance_file: _Optional[_Union[_instance_pb2.SendInstanceFile, _Mapping]] = ..., node_command: _Optional[_Union[_node_pb2.NodeCommand, _Mapping]] = ..., traceparent: _Optional[str] = ..., epoch: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class ControllerBatch(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ControllerMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ControllerMessage, _Mapping]]] = ...) -> None: ...
