-- @include lib: chunk(listed)
-- @include bullmq/lib: meta(major_version) parents(parent_of release_parent)

-- Maximum number of ancestors in which a cycle is looked for.
local MOST_ANCESTORS = 100

-- Returns five functions for the jobs of a chunk, or nil when none of them has a parent:
--   parent_at(i): the parent of a row, {id, queue (with the prefix), key, option = JSON text for the job's options,
--     field = JSON text for the job's hash}; nil if it has none.
--   join(parent, job_key): makes a new job a child, whose hash has the parent. The caller calls `flush` at the end.
--   join_existing(parent, job_id, timestamp): makes a job that exists a child, as BullMQ does, unless it is refused.
--   refusal(parent, job_key, new_parents): why a job can't be a child: 'other parent' (it has another one, which exists)
--     or 'cycle' (it is an ancestor of the parent); nil if it can. `new_parents`: keys of parents that are not stored yet,
--     by the keys of their children.
--   flush()
-- With `chunk.deferred` no parent is released: the caller does it, after all children were added.
local function chunk_parents(key, arg, chunk)
  if not chunk.parent_id then
    return nil
  end
  local call = redis.call
  local ids, queues, flags = listed(chunk, 'parent_id'), listed(chunk, 'parent_queue'), listed(chunk, 'on_failure')
  local prefix = string.sub(arg.base, 1, -#arg.queue - 2)
  local is_5 = major_version(call('HGET', key.meta, 'version'), arg.bullmq_version) <= 5

  -- Many rows have the parent of the row before.
  local last, last_row

  local function parent_at(i)
    local id, queue = ids[i], queues[i]
    if not id then
      return nil
    end
    if last and ids[last_row] == id and queues[last_row] == queue and flags[last_row] == flags[i] then
      return last
    end
    if not string.find(queue, ':', 1, true) then
      queue = prefix .. queue
    end
    local id_text, queue_text = cjson.encode(id), cjson.encode(queue)
    local flag = flags[i] and ',"' .. flags[i] .. '":true' or ''
    last_row = i
    last = {
      id = id,
      queue = queue,
      key = queue .. ':' .. id,
      option = '{"id":' .. id_text .. ',"queue":' .. queue_text .. '}',
      field = '{"id":' .. id_text .. ',"queueKey":' .. queue_text .. flag .. '}',
    }
    return last
  end

  -- New children of one parent, which are added to its set together.
  local newest, parent_of_newest = {}, nil

  local function flush()
    if parent_of_newest then
      call('SADD', parent_of_newest.key .. ':dependencies', unpack(newest))
      newest, parent_of_newest = {}, nil
    end
  end

  local function join(parent, job_key)
    if parent_of_newest ~= parent then
      flush()
      parent_of_newest = parent
    end
    newest[#newest + 1] = job_key
  end

  local function is_ancestor(job_key, parent_key, new_parents)
    local ancestor = parent_key
    for _ = 1, MOST_ANCESTORS do
      if not ancestor or ancestor == job_key then
        return ancestor == job_key
      end
      ancestor = new_parents and new_parents[ancestor] or call('HGET', ancestor, 'parentKey')
    end
    return false
  end

  local function refusal(parent, job_key, new_parents)
    local other = call('HGET', job_key, 'parentKey')
    if other and other ~= parent.key and call('EXISTS', other) == 1 then
      return 'other parent'
    end
    return is_ancestor(job_key, parent.key, new_parents) and 'cycle' or nil
  end

  -- The result of a job that has completed is known at once.
  local function join_completed(parent, job_key, timestamp)
    call('HSET', parent.key .. ':processed', job_key, call('HGET', job_key, 'returnvalue') or 'null')
    if not chunk.deferred and call('SCARD', parent.key .. ':dependencies') == 0 then
      local keys, parent_id = parent_of(key, arg, parent.key)
      release_parent(keys, arg, parent.key, parent_id, keys.waiting_children, timestamp)
    end
  end

  local function join_existing(parent, job_id, timestamp)
    flush()
    local job_key = arg.base .. job_id
    local refused, other = refusal(parent, job_key), call('HGET', job_key, 'parentKey')
    if refused or (is_5 and other and other ~= parent.key) then
      -- BullMQ 5 leaves a job whose parent is gone without one.
      return refused
    end
    if call('ZSCORE', key.completed, job_id) then
      join_completed(parent, job_key, timestamp)
    else
      call('SADD', parent.key .. ':dependencies', job_key)
    end
    call('HSET', job_key, 'parentKey', parent.key, 'parent', parent.field)
  end

  return parent_at, join, join_existing, refusal, flush
end
