-- The events of a queue.
-- @include lib: events(is_written)
-- @include bull/bull1/lib: events(opts_with_id)
-- @include bull/lib: events(json_text)

-- The JSON text of a job's options with its id, which is JSON, as `jobId` unless they have one.
local function opts_with_id(opts, id)
  if opts == '{}' then
    return '{"jobId":' .. id .. '}'
  elseif string.find(opts, '"jobId":', 1, true) then
    return opts
  end
  return string.sub(opts, 1, -2) .. ',"jobId":' .. id .. '}'
end

-- Return values of a job for which Bull 1 publishes null.
local FALSY = {[''] = true, ['0'] = true, ['""'] = true, ['false'] = true}

-- Publishes the message of Bull 1.1 and 2 about a job, unless it is left out, on a channel without prefix: [sender, job,
-- what].
local function announce(arg, event, job_id, what)
  if not is_written(arg, event) then
    return
  end
  local fields = call('HMGET', arg.base .. job_id, 'data', 'opts', 'progress', 'delay', 'timestamp', 'attempts',
    'attemptsMade', 'stacktrace', 'returnvalue')
  if not fields[5] then
    return
  end
  local opts = opts_with_id(fields[2] or '{}', json_text(job_id))
  local value = fields[9] and not FALSY[fields[9]] and fields[9] or 'null'
  call('PUBLISH', event .. '@' .. arg.queue, '["' .. arg.token .. '",{"data":' .. (fields[1] or '{}')
    .. ',"opts":' .. opts .. ',"progress":' .. (fields[3] or '0') .. ',"delay":' .. (fields[4] or '0')
    .. ',"timestamp":' .. fields[5] .. ',"attempts":' .. (fields[6] or '1') .. ',"attemptsMade":' .. (fields[7] or '0')
    .. ',"stacktrace":' .. (fields[8] or '[]') .. ',"returnvalue":' .. value .. '}'
    .. (what and ',' .. what or '') .. ']')
end

local function announce_progress(_, arg)
  announce(arg, 'progress', arg.job_id, arg.progress)
end
