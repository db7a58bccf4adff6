-- @include bullmq/lib: relay_key

-- Lets jobs wait for jobs that they depend on. `links`: {ids = of these, dependents = a list of ids for each, relayed =
-- whether each has a relay, on_failure = flag for their failure}. All were added by the same write, and wait: a job
-- that does not wait was there before, and neither waits nor is waited for. The one dependent of a job is its parent,
-- as in BullMQ; several ones are told of its end by a relay.
local function link_jobs(key, arg, links, now)
  local call, base = redis.call, arg.base
  local relayed = links.relayed
  local flag = links.on_failure and ',"' .. links.on_failure .. '":true' or ''

  local function waits(job_id)
    return call('ZSCORE', key.waiting_children, job_id)
  end

  local function set_parent(job_key, parent_key, parent_id, queue)
    call('HSET', job_key, 'parentKey', parent_key, 'parent',
      '{"id":' .. cjson.encode(parent_id) .. ',"queueKey":' .. cjson.encode(queue) .. flag .. '}')
  end

  local function add_relay(job_id, job_key)
    local relay = relay_key(key, job_id)
    local relay_id = string.sub(relay, #key.relays + 2)
    if call('HSETNX', relay, 'name', 'relay') == 1 then
      call('HSET', relay, 'data', '{}', 'opts', '{}', 'timestamp', string.format('%.0f', now), 'delay', '0',
        'priority', '0', 'of', job_id, 'flag', links.on_failure or '')
      call('SADD', relay .. ':dependencies', job_key)
      call('ZADD', key.relay_waiting_children, now, relay_id)
      set_parent(job_key, relay, relay_id, key.relays)
    end
    return relay
  end

  for i, job_id in ipairs(links.ids) do
    local job_key = base .. job_id
    if waits(job_id) then
      for _, dependent in ipairs(links.dependents[i]) do
        if waits(dependent) then
          call('SADD', base .. dependent .. ':dependencies', job_key)
          if relayed[i] then
            call('RPUSH', add_relay(job_id, job_key) .. ':dependents', dependent)
          else
            set_parent(job_key, base .. dependent, dependent, string.sub(base, 1, -2))
          end
        end
      end
    end
  end
end
