// Event files in TensorBoard's format: a sequence of TFRecords, each an Event protobuf.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace megatrain {

// CRC-32C (Castagnoli), as used by TFRecords.
uint32_t crc32c(std::string_view bytes);

// Little-endian: length (8 bytes), its masked CRC, the bytes, their masked CRC.
std::string tf_record(std::string_view bytes);

// Events in protobuf wire format. `wall_time` is seconds since 1970.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, double value);  // stored as fp32
// A run starts or resumes at `step`: readers discard what earlier files say about this step and later ones. They act
// only on a run's second such event and later, so every file begins with one.
std::string start_event(double wall_time, int64_t step);

class EventFile {
 public:
  // Opens a new file in `directory`, which is created if needed. Its name sorts after the existing files, and it begins
  // with a start event for `first_step`.
  EventFile(const std::string& directory, int64_t first_step);

  const std::string& path() const { return path_; }
  void scalar(std::string_view tag, int64_t step, double value);
  void flush();  // makes everything so far visible to readers; throws Error(io)

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace megatrain
