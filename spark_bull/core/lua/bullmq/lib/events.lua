-- The events of a queue, and what `meta` says about it.
-- @include lib: events(is_written) values(whole_number)

-- Adds an event of a job to the stream, unless it is left out; see is_written. (In a function with `...`, Lua has a
-- variable `arg` of its own.)
local function emit(key, args, event, ...)
  if is_written(args, event) then
    call('XADD', key.events, '*', 'event', event, ...)
  end
end

-- The limits that this script has read, by the key of `meta`.
local EVENT_LIMITS = {}

-- The approximate maximum length of the event stream; the default is stored in `meta`, as in BullMQ, and stands in
-- for a text that is no number.
local function event_limit(key)
  local name = key.meta
  if not EVENT_LIMITS[name] then
    local given = call('HGET', name, 'opts.maxLenEvents')
    EVENT_LIMITS[name] = given and (given == '0' or whole_number(given) > 0) and string.format('%.0f', whole_number(given))
      or '10000'
    if not given then
      call('HSET', name, 'opts.maxLenEvents', '10000')
    end
  end
  return EVENT_LIMITS[name]
end

-- As `emit`, in a script that does not trim the stream otherwise.
local function emit_trimmed(key, args, event, ...)
  if is_written(args, event) then
    call('XADD', key.events, 'MAXLEN', '~', event_limit(key), '*', 'event', event, ...)
  end
end

-- Tells that finished jobs were removed.
local function note_cleaned(key, count)
  if count > 0 then
    call('XADD', key.events, '*', 'event', 'cleaned', 'count', count)
  end
end

local function announce_progress(key, arg)
  emit_trimmed(key, arg, 'progress', 'jobId', arg.job_id, 'data', arg.progress)
end

-- What `meta` says about a queue.

-- What this script has read of `meta`, by its key.
local META = {}

-- Fields of `meta` of a queue: {paused, concurrency, version}, false for none. Read once per script: a script that
-- changes them does so before.
local function meta_of(key)
  local name = key.meta
  if not META[name] then
    META[name] = call('HMGET', name, 'paused', 'concurrency', 'version')
  end
  return META[name]
end

-- The major version of BullMQ of a queue: the given one, or the one in its `meta`; 5 if unknown: BullMQ up to 5.19
-- writes none, and BullMQ 6 also finds the jobs that BullMQ 5 has left in `paused`.
local function major_version(version, forced_version)
  if forced_version ~= 'auto' then
    return tonumber(forced_version)
  end
  return tonumber(string.match(version or '', '^bullmq:(%d+)%.') or '5')
end
