-- @include lib: args_at keys_at only_rows
-- @include {dialect}/lib: add_jobs settle_jobs

-- Adds the follow-ups of outcomes, those of rejected ones excepted. `follow_ups`: a list of {base, queue, of, jobs}: a
-- chunk of jobs for one queue, and the id of the settled job that each belongs to. `settled`: the result of
-- settle_jobs.
local function add_follow_ups(key, arg, follow_ups, settled, now)
  local is_lost = {}
  for _, one in ipairs(settled.lost) do
    is_lost[one[1]] = true
  end
  for _, group in ipairs(follow_ups) do
    local rows = {}
    for row, id in ipairs(group.of) do
      if settled.mine[id] and not is_lost[id] then
        rows[#rows + 1] = row
      end
    end
    local chunk = only_rows(group.jobs, rows)
    chunk.whole = true
    if chunk.n > 0 then
      add_jobs(keys_at(key, arg, group.base), args_at(arg, group.base, group.queue), chunk, 1, now)
    end
  end
end

-- Settles jobs as `settle_jobs` does, and adds their follow-ups.
local function settle_and_add(key, arg, outcomes, now)
  local settled = settle_jobs(key, arg, outcomes, now)
  add_follow_ups(key, arg, outcomes.follow_ups, settled, now)
  return settled
end
