-- The JSON text of a job's options with its id, which is JSON, as `jobId` unless they have one.
local function opts_with_id(opts, id)
  if opts == '{}' then
    return '{"jobId":' .. id .. '}'
  elseif string.find(opts, '"jobId":', 1, true) then
    return opts
  end
  return string.sub(opts, 1, -2) .. ',"jobId":' .. id .. '}'
end
