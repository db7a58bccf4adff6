-- @include lib: managed_jobs walk_steps(WALK_STEPS)
-- @include {dialect}/lib: manage_actions mismatch_of

-- What a job costs of the steps of one script, by its action.
local STEPS_OF = {delay = 1250, remove = 1500, fail = 3500, complete = 3500, move = 3500}
local STEPS = 1000

-- Changes the jobs of a chunk from row `from` on, as many as one script may. `mismatch_of` says why a job can't be
-- changed: 'missing', 'locked', 'scheduled', 'wrong_state' or 'exists', or nil. `manage_actions[name](change, share)`
-- changes one job and returns 'done' or such a reason; or 'open' to be called again in the next script.
-- Returns {next = first row not processed, outcomes}.
local function manage_jobs(key, arg, chunk, from, now)
  local mismatch, actions = mismatch_of(key, arg), manage_actions(key, arg, now)
  local change_of, outcomes, i = managed_jobs.changes_of(arg.base, chunk), {}, from
  local share = {steps = WALK_STEPS}
  while i <= chunk.n do
    local change = change_of(i)
    share.is_first = i == from
    if not managed_jobs.takes_steps(share, STEPS_OF[change.action] or STEPS) then
      break
    end
    local outcome = mismatch(change) or actions[change.action](change, share)
    if outcome == 'open' then
      break
    end
    if outcome == 'done' and change.data and change.action ~= 'move' then
      redis.call('HSET', change.key, 'data', change.data)
    end
    outcomes[#outcomes + 1] = outcome
    i = i + 1
  end
  return {next = i, outcomes = outcomes}
end
