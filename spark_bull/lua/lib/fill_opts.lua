-- Replaces a mark, if the text has it.
local function with_mark(opts, mark, text)
  local at = string.find(opts, mark, 1, true)
  return at and string.sub(opts, 1, at - 1) .. text .. string.sub(opts, at + 1) or opts
end

-- Replaces the marks in the JSON text of a job's options, control characters that JSON text can't contain: \1 the
-- timestamp, \2 the delay, \3 the job id, \4 the deduplication id, \5 the parent. With them, many jobs share one text,
-- and the timestamp can be the time of Redis. `parent`: JSON text.
local function fill_opts(opts, timestamp, delay, job_id, deduplication_id, parent)
  if deduplication_id then
    opts = with_mark(opts, '\4', cjson.encode(deduplication_id))
  end
  if parent then
    opts = with_mark(opts, '\5', parent)
  end
  if (deduplication_id or parent) and not string.find(opts, '[\1\2\3]') then
    return opts
  end
  local values = {['\1'] = timestamp, ['\2'] = delay}
  if string.find(opts, '\3', 1, true) then
    values['\3'] = cjson.encode(job_id)
  end
  return (string.gsub(opts, '[\1\2\3]', values))
end
