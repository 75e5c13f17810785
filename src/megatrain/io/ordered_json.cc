#include "megatrain/io/json_members.h"

MEGATRAIN_JSON_MEMBERS(nlohmann::basic_json<nlohmann::ordered_map>)
