-- @include lib: group_checks group_name group_own

-- Lets groups rest whose jobs have asked for it, `outcomes.rested`: {id, ms}. These jobs are added to the returned ones;
-- jobs in no group to the delayed ones. `left`: {job id -> group} of the jobs that have left their groups.
local function rest_groups(key, arg, outcomes, left, now)
  for _, job in ipairs(outcomes.rested or {}) do
    local group, rests_until = left[job.id], now + job.ms
    if group then
      local own, settings = group_own.of(key, group), redis.call('GET', key.group_settings)
      own.rests_until = math.max(own.rests_until or 0, rests_until)
      own.name = own.name or settings and group_name.of_job(cmsgpack.unpack(settings).path, arg.base .. job.id) or nil
      group_own.save(key, group, own)
      group_checks.plan_next(key, group, now)
      outcomes.returned = outcomes.returned or {}
      table.insert(outcomes.returned, job.id)
    else
      outcomes.delayed = outcomes.delayed or {}
      table.insert(outcomes.delayed, {id = job.id, ['until'] = rests_until})
    end
  end
end
