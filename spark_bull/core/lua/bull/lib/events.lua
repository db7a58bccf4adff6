-- The events of a queue.
-- @include lib: events(is_written)
-- @include bull/lib: events(json_text)

-- A text as JSON, as JavaScript writes it: cjson escapes slashes, too.
local function json_text(text)
  local encoded = cjson.encode(text)
  return string.find(text, '/', 1, true) and (string.gsub(encoded, '\\/', '/')) or encoded
end

-- Publishes an event of a job, unless it is left out; see is_written.
local function publish(arg, event, channel, message)
  if is_written(arg, event) then
    call('PUBLISH', channel, message)
  end
end

local function announce_progress(_, arg)
  local job_id = json_text(arg.job_id)
  publish(arg, 'progress', arg.base .. 'progress', '{"jobId":' .. job_id .. ',"progress":' .. arg.progress .. '}')
end
