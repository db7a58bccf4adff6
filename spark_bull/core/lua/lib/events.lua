-- The events of a queue.

-- The events of a job that goes on: who waits for its end needs none of them.
local STEPS = {added = true, waiting = true, active = true, ['waiting-children'] = true}

-- Whether an event of a job is written or published, by what the sender has chosen: `all`, `ends` (all but STEPS) or
-- `none`. `delayed` always is, as promoters wake by it.
local function is_written(arg, event)
  return arg.events == 'all' or event == 'delayed' or (arg.events == 'ends' and not STEPS[event])
end

-- The time and the sequence number in the id of an event.
local function event_parts(event_id)
  local ms, number = string.match(event_id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

-- Whether an event comes after another one.
local function is_behind(event_id, other_id)
  local ms, number = event_parts(event_id)
  local other_ms, other_number = event_parts(other_id)
  return ms > other_ms or (ms == other_ms and number > other_number)
end

-- What Redis says about a stream, by name; nil without a stream.
local function stream_info(stream)
  if call('EXISTS', stream) == 0 then
    return nil
  end
  local flat, info = call('XINFO', 'STREAM', stream), {}
  for i = 1, #flat, 2 do
    info[flat[i]] = flat[i + 1]
  end
  return info
end

-- The id of the last event added to a stream, even if it was trimmed since; '0-0' for none.
local function last_event(stream)
  local info = stream_info(stream)
  return info and info['last-generated-id'] or '0-0'
end

-- Tells that finished jobs were removed, where the dialect has an event for that.
local function note_cleaned() end
