// The kinds of things `megatrain inspect` can show. Each function prints to standard output and returns the exit code.
#pragma once

#include <string>

namespace megatrain {

struct InspectOptions {
  bool json = false;
  bool tensors = false;  // list all tensors
};

int inspect_model(const std::string& directory, const InspectOptions& options);
int inspect_adapter(const std::string& directory, const InspectOptions& options);
int inspect_run(const std::string& directory, const InspectOptions& options);

}  // namespace megatrain
