-- Replaces a job's payload.
-- @returns 0, or -1 when the job does not exist

if call('EXISTS', key.job) == 0 then
  return -1
end
call('HSET', key.job, 'data', arg.data)
return 0
