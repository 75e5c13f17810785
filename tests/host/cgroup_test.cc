// Limits of control groups, read from files under a fake root.
#include "megatrain/host/cgroup.h"

#include <filesystem>

#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

class Root {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::string file = directory_ / path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_bytes(file, text);
  }
  std::optional<CgroupMemory> memory() const { return cgroup_memory(directory_ / ""); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST(Cgroup, TheTightestLimitAboveTheProcessCountsAndDroppableFilePagesAreFree) {
  const Root root;
  root.write("proc/self/cgroup", "0::/user/job\n");
  root.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  EXPECT_FALSE(root.memory());
  root.write("sys/fs/cgroup/user/memory.max", "8000000\n");
  root.write("sys/fs/cgroup/user/memory.current", "5000000\n");
  root.write("sys/fs/cgroup/user/memory.stat", "anon 1000000\ninactive_file 1500000\nactive_file 2500000\n");
  ASSERT_TRUE(root.memory());
  EXPECT_EQ(root.memory()->limit_bytes, 8000000);
  EXPECT_EQ(root.memory()->available_bytes, 7000000);
  root.write("sys/fs/cgroup/user/job/memory.max", "3000000\n");
  root.write("sys/fs/cgroup/user/job/memory.current", "9000000\n");
  EXPECT_EQ(root.memory()->limit_bytes, 3000000);
  EXPECT_EQ(root.memory()->available_bytes, 0);  // never negative
}

TEST(Cgroup, AContainerSeesItsOwnLimitAtTheRoot) {
  const Root root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "1000\n");
  EXPECT_EQ(root.memory()->limit_bytes, 1000);
}

TEST(Cgroup, VersionOneHasFilesOfOtherNamesAndAHugeNumberForNoLimit) {
  const Root root;
  root.write("proc/self/cgroup", "9:cpu:/a\n7:memory:/a\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(root.memory());
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
  root.write("sys/fs/cgroup/memory/a/memory.stat",
             "inactive_file 300\ntotal_inactive_file 400\ntotal_active_file 100\n");
  EXPECT_EQ(root.memory()->available_bytes, 3500);
}

TEST(Cgroup, WithoutControlGroupsThereIsNoLimit) { EXPECT_FALSE(Root().memory()); }

}  // namespace megatrain
