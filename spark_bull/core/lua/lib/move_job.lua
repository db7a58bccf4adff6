-- @include lib: args_at finite_number id_there is_true keys_at options_of whole_number
-- @include {dialect}/lib: add_jobs

-- Adds the job of a change to the queue `change.to` as a new one with the same name, payload, options and terms; its own
-- keys stay. A job that has expired may start there.
local function move_job(key, arg, change, now)
  local fields = redis.call('HMGET', change.key, 'name', 'data', 'opts', 'priority', 'attempts', 'expireAt', 'stc',
    'stalledCounter')
  local opts, expires = options_of(fields[3]), finite_number(fields[6])
  local chunk = {
    n = 1,
    whole = true,
    name = {fields[1] or '__default__'},
    data = {change.data or fields[2] or '{}'},
    opts = {fields[3] or '{}'},
    job_id = {id_there(change)},
    delay = {change.delay or 0},
    priority = {whole_number(fields[4])},
    lifo = {is_true(opts.lifo)},
    attempts = {finite_number(fields[5]) or 1},
    expire_at = {expires and expires > now and expires or nil},
    stalled_counter = {opts.delivery == 'at-most-once' and (fields[7] or fields[8]) or nil},
  }
  add_jobs(keys_at(key, arg, change.to_base), args_at(arg, change.to_base, change.to), chunk, 1, now)
end
