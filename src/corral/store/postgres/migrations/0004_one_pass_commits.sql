-- The same batch in one pass over the index: the statements that write also compare, and the number of rows
-- they wrote is the answer. Only a batch with a refusal is taken back, in its savepoint, and then examined
-- row by row. Arguments and outcome are as before, so that a controller of the version before can use it.
create or replace function corral_commit(
    held bigint, batch_name text, batch_at timestamptz, transactions int,
    write_place int[], write_collection text[], write_id text[], write_body bytea[], write_expect bigint[],
    event_place int[], event_type text[], event_subject text[], event_data bytea[],
    entry_place int[], entry_journal text[], entry_body bytea[]
) returns text language plpgsql as $$
declare
    before head%rowtype;
    refused jsonb := '[]';
    refused_places int[] := '{}';
    numbers bigint[];
    number bigint;
    writes int := cardinality(write_place);
    written int := 0;
    rows int;
    result text;
begin
    perform corral_check_fence(held);
    select * into strict before from head for update;
    number := before.commit_number + transactions;

    -- As if nothing were refused. A row that this batch has written is not written again: a batch that names
    -- a document twice ends below, where every expectation is compared with the state before the batch.
    begin
        update document d set revision = before.commit_number + w.place, body = w.body
            from unnest(write_place, write_collection, write_id, write_body, write_expect)
                as w (place, collection, id, body, expect)
            where w.expect > 0 and d.collection = w.collection and d.id = w.id
                and d.revision = w.expect and d.body is not null;
        get diagnostics written = row_count;

        if written < writes then
            insert into document as d (collection, id, revision, body)
                select w.collection, w.id, before.commit_number + w.place, w.body
                from unnest(write_place, write_collection, write_id, write_body, write_expect)
                    as w (place, collection, id, body, expect)
                where w.expect = 0
                on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body
                    where d.body is null and d.revision <= before.commit_number;
            get diagnostics rows = row_count;
            written := written + rows;
        end if;

        if written < writes then
            insert into document as d (collection, id, revision, body)
                select w.collection, w.id, before.commit_number + w.place, w.body
                from unnest(write_place, write_collection, write_id, write_body, write_expect)
                    as w (place, collection, id, body, expect)
                where w.expect is null
                on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body
                    where d.revision <= before.commit_number;
            get diagnostics rows = row_count;
            written := written + rows;
        end if;

        if written < writes then
            raise exception using errcode = 'CRF02', message = 'not all rows were as expected';
        end if;
    exception when sqlstate 'CRF02' or cardinality_violation then
        written := -1;
    end;

    if written < 0 then
        select coalesce(jsonb_agg(jsonb_build_array(place - 1, jsonb_build_object(
                   'collection', collection, 'id', id, 'expect', expect, 'found', actual)) order by place), '[]'),
               coalesce(array_agg(place), '{}')
        into refused, refused_places
        from (
            select distinct on (w.place) w.place, w.collection, w.id, w.expect, coalesce(d.revision, 0) as actual
            from unnest(write_place, write_collection, write_id, write_expect)
                with ordinality as w (place, collection, id, expect, position)
            left join document d
                on d.collection = w.collection and d.id = w.id and d.body is not null
            where w.expect <> coalesce(d.revision, 0)
            order by w.place, w.position
        ) as mismatch;

        -- Accepted transactions are numbered in their order; 0 marks a refused one.
        numbers := array_fill(0::bigint, array[transactions]);
        number := before.commit_number;
        for place in 1 .. transactions loop
            if not place = any (refused_places) then
                number := number + 1;
                numbers[place] := number;
            end if;
        end loop;

        insert into document as d (collection, id, revision, body)
            select w.collection, w.id, numbers[w.place], w.body
            from unnest(write_place, write_collection, write_id, write_body) as w (place, collection, id, body)
            where numbers[w.place] > 0
            on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body;

        -- What is left of the events and entries below are those of accepted transactions.
        select coalesce(array_agg(e.type order by e.position), '{}'),
               coalesce(array_agg(e.subject order by e.position), '{}'),
               coalesce(array_agg(e.data order by e.position), '{}')
        into event_type, event_subject, event_data
        from unnest(event_place, event_type, event_subject, event_data)
            with ordinality as e (place, type, subject, data, position)
        where numbers[e.place] > 0;
        select coalesce(array_agg(e.journal order by e.position), '{}'),
               coalesce(array_agg(e.body order by e.position), '{}')
        into entry_journal, entry_body
        from unnest(entry_place, entry_journal, entry_body) with ordinality as e (place, journal, body, position)
        where numbers[e.place] > 0;
    end if;

    if cardinality(event_type) > 0 then
        insert into event (sequence, epoch, type, subject, at, data)
            select before.sequence + e.position, held, e.type, e.subject, batch_at, e.data
            from unnest(event_type, event_subject, event_data)
                with ordinality as e (type, subject, data, position);
    end if;

    if cardinality(entry_journal) > 0 then
        insert into entry (number, journal, at, body)
            select before.entry + e.position, e.journal, batch_at, e.body
            from unnest(entry_journal, entry_body) with ordinality as e (journal, body, position);
    end if;

    result := json_build_object(
        'before', json_build_object(
            'commit', before.commit_number, 'sequence', before.sequence, 'entry', before.entry,
            'epoch', held, 'batch', before.batch, 'event_epoch', before.event_epoch),
        'transactions', transactions, 'refused', refused);
    update head set
        commit_number = number,
        sequence = before.sequence + cardinality(event_type),
        event_epoch = case when cardinality(event_type) > 0 then held else before.event_epoch end,
        entry = before.entry + cardinality(entry_journal),
        batch = batch_name,
        outcome = result;
    return result;
end $$;
