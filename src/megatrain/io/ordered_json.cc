#include "megatrain/io/json.h"

MEGATRAIN_JSON(, nlohmann::basic_json<nlohmann::ordered_map>)
