-- @include lib/args_at
-- @include lib/keep_of
-- @include lib/keys_at

-- The id that a job keeps in another queue: numbers belong to its queue.
local function id_there(change)
  return not string.match(change.id, '^%d+$') and change.id or nil
end

local function exists_there(change)
  local id = id_there(change)
  return id and redis.call('EXISTS', change.to_base .. id) == 1
end

-- Adds the job of a change to the queue `change.to` as a new one with the same name, payload, options and terms; its own
-- keys stay. A job that has expired may start there. `add_jobs`: adds a chunk.
local function move_job(key, arg, change, now, add_jobs)
  local fields = redis.call('HMGET', change.key, 'name', 'data', 'opts', 'priority', 'attempts', 'expireAt', 'stc',
    'stalledCounter')
  local opts, expires = options_of(fields[3]), tonumber(fields[6])
  local chunk = {
    n = 1,
    whole = true,
    name = {fields[1] or '__default__'},
    data = {change.data or fields[2] or '{}'},
    opts = {fields[3] or '{}'},
    job_id = {id_there(change)},
    delay = {change.delay or 0},
    priority = {tonumber(fields[4]) or 0},
    lifo = {opts.lifo == true},
    attempts = {tonumber(fields[5]) or 1},
    expire_at = {expires and expires > now and expires or nil},
    stalled_counter = {opts.delivery == 'at-most-once' and (fields[7] or fields[8]) or nil},
  }
  add_jobs(keys_at(key, arg, change.to_base), args_at(arg, change.to_base, change.to), chunk, 1, now)
end
