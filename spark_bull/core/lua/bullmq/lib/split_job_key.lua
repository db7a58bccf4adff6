-- The part of the keys of relays between the base of their queue and the id; relays are a queue of private keys.
local RELAYS = 'spark:relay:'

-- Parents and children refer to each other by the keys of their hashes, in any queue.
-- Returns the base of the queue's keys, and the job's id. The name of a queue has no ':', an id can have some.
local function split_job_key(arg, job_key)
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  if string.sub(job_key, 1, #prefix) == prefix then
    local queue, job_id = string.match(job_key, '^([^:]*:)(.*)$', #prefix + 1)
    if queue and string.sub(job_id, 1, #RELAYS) == RELAYS then
      return prefix .. queue .. RELAYS, string.sub(job_id, #RELAYS + 1)
    elseif queue then
      return prefix .. queue, job_id
    end
  end
  return string.match(job_key, '^(.*:)(.*)$')
end
