// Event files as TensorBoard reads them: a sequence of TFRecords, each an Event of its protocol.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace megatrain {

// The CRC of Castagnoli, as TFRecords use it.
uint32_t crc32c(std::string_view bytes);

// length (8 bytes), masked crc of it, bytes, masked crc of them; little-endian.
std::string tf_record(std::string_view bytes);

// Events in protobuf's wire form. `wall_time` is seconds since 1970.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, double value);  // stored as fp32
// A run starts at `step`, or goes on from there: readers forget what earlier files say of this step and later ones.
// They do so from the second such event of a run on, so every file has one.
std::string start_event(double wall_time, int64_t step);

class EventFile {
 public:
  // A new file in `directory`, which is made if need be; its name sorts after those of the files there. It begins with
  // the start of `first_step`.
  EventFile(const std::string& directory, int64_t first_step);

  const std::string& path() const { return path_; }
  void scalar(std::string_view tag, int64_t step, double value);
  void flush();  // readers see everything so far; throws Error(io)

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace megatrain
