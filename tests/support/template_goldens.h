// The files of tests/chat: templates, and transformers' results for them.
#pragma once

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "megatrain/io/json.h"
#include "tests/support/places.h"

namespace megatrain::golden {

inline std::filesystem::path chat_folder() { return std::filesystem::path(in_repository("tests/chat")); }

inline std::string read_text(const std::string& name) {
  std::ifstream file(chat_folder() / name, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + name);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

inline nlohmann::ordered_json read_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_text(name));
}

// The time of the goldens: Sunday, 9 March 2025, 14:05:07.
inline std::tm fixed_time() {
  std::tm time = {};
  time.tm_year = 125;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 7;
  time.tm_wday = 0;
  time.tm_yday = 67;
  return time;
}

}  // namespace megatrain::golden
