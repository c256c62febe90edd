-- Events that modules published have a share of the log: they are counted, and dropped from among the others.
create index event_of_module on event (sequence) where type = 'MODULE_EVENT';

create function corral_drop_module_events(held bigint, events_through bigint, most int)
returns int language plpgsql as $$
declare
    dropped int;
begin
    perform corral_check_fence(held);
    delete from event where sequence in (
        select sequence from event where type = 'MODULE_EVENT' and sequence <= events_through
        order by sequence limit most);
    get diagnostics dropped = row_count;
    return dropped;
end $$;
