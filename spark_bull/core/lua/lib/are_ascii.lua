-- Whether all of these texts are ASCII. To search each of them takes three times as long.
local function are_ascii(texts)
  return string.find(table.concat(texts), '^[%z\1-\127]*$') ~= nil
end
