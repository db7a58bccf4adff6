-- Parents and children refer to each other by the keys of their hashes, in any queue.
-- Returns the base of the queue's keys, and the job's id. The name of a queue has no ':', an id can have some; the queue
-- of relays has private keys.
local function split_job_key(arg, job_key)
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  if string.sub(job_key, 1, #prefix) == prefix then
    local relays, relay_id = string.match(job_key, '^(.*:spark:relay:)(.*)$')
    if relays then
      return relays, relay_id
    end
    local queue, job_id = string.match(job_key, '^([^:]*:)(.*)$', #prefix + 1)
    if queue then
      return prefix .. queue, job_id
    end
  end
  return string.match(job_key, '^(.*:)(.*)$')
end
