-- Replaces the marks in the JSON text of a job's options, control characters that JSON text can't contain: \1 the
-- timestamp, \2 the delay, \3 the job id, \4 the deduplication id. With them, many jobs share one text, and the
-- timestamp can be the time of Redis.
local function fill_opts(opts, timestamp, delay, job_id, deduplication_id)
  local at = deduplication_id and string.find(opts, '\4', 1, true)
  if at then
    opts = string.sub(opts, 1, at - 1) .. cjson.encode(deduplication_id) .. string.sub(opts, at + 1)
    if not string.find(opts, '[\1\2\3]') then
      return opts
    end
  end
  local values = {['\1'] = timestamp, ['\2'] = delay}
  if string.find(opts, '\3', 1, true) then
    values['\3'] = cjson.encode(job_id)
  end
  return (string.gsub(opts, '[\1\2\3]', values))
end
