-- The JSON text of a job's options may hold three marks, control characters that JSON text never
-- has: \1 the timestamp, \2 the delay, \3 the job id. So one text serves many jobs, and the time
-- may be Redis' own.
local function fill_opts(opts, timestamp, delay, job_id)
  local values = {['\1'] = timestamp, ['\2'] = delay}
  if string.find(opts, '\3', 1, true) then
    values['\3'] = cjson.encode(job_id)
  end
  return (string.gsub(opts, '[\1\2\3]', values))
end
