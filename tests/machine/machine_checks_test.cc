// The doctor's checks, on a fake /proc and /sys.
#include "megatrain/machine/machine_checks.h"

#include <filesystem>
#include <map>

#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// A machine on which nothing is wrong.
class Box {
 public:
  Box() {
    write("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
    write("proc/self/limits", "Limit  Soft Limit Hard Limit Units\nMax locked memory  unlimited unlimited bytes\n");
    write("proc/meminfo", "MemTotal:       65536000 kB\nMemAvailable: 60000000 kB\n");
    write("proc/self/cgroup", "0::/\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    write("sys/module/nvidia/version", "570.1\n");
    // the GPU below its port, linked as in sysfs
    const std::string port = "sys/devices/pci0000:00/0000:00:01.0/", gpu = port + "0000:01:00.0/";
    for (const std::string& device : {port, gpu}) {
      write(device + "max_link_width", "16\n");
      write(device + "max_link_speed", "32.0 GT/s PCIe\n");
    }
    write(gpu + "vendor", "0x10de\n");
    write(gpu + "class", "0x030200\n");
    write(gpu + "current_link_width", "16\n");
    write(gpu + "current_link_speed", "32.0 GT/s PCIe\n");
    write(gpu + "numa_node", "1\n");
    write(gpu + "local_cpulist", "8-15,24\n");
    fs::create_directories(path("sys/bus/pci/devices"));
    fs::create_directory_symlink(path(gpu), path("sys/bus/pci/devices/0000:01:00.0"));
    gpu_ = gpu;
  }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(path(file)).parent_path());
    write_bytes(path(file), text);
  }
  void write_gpu(const std::string& file, const std::string& text) const { write(gpu_ + file, text); }
  std::string path(const std::string& file) const { return directory_ / file; }

  std::map<std::string, MachineCheck> checks(const std::vector<int>& cpus = {0, 8, 9},
                                             const std::string& gpu = "NVIDIA H200") const {
    std::map<std::string, MachineCheck> by_name;
    for (const MachineCheck& check : machine_checks(
             {.gpu = gpu, .why_no_gpu = "no driver", .directory = in_repository(""), .cpus = cpus, .root = path("")})) {
      EXPECT_EQ(check.ok, check.fix.empty()) << check.name;
      EXPECT_FALSE(check.expected.empty()) << check.name;
      by_name[check.name] = check;
    }
    return by_name;
  }
  // The named check fails. All others pass, except the directory's, which depends on this machine.
  void expect_warning(const std::string& name, const std::string& found, const std::string& fix,
                      const std::vector<int>& cpus = {0, 8, 9}) const {
    for (const auto& [other, check] : checks(cpus)) {
      if (other == "scratch") continue;
      EXPECT_EQ(check.ok, other != name) << other << ": " << check.found;
      if (other != name) continue;
      EXPECT_NE(check.found.find(found), std::string::npos) << check.found;
      EXPECT_NE(check.fix.find(fix), std::string::npos) << check.fix;
    }
    EXPECT_TRUE(checks(cpus).contains(name)) << name;
  }

 private:
  TemporaryDirectory directory_;
  std::string gpu_;
};

}  // namespace

TEST(MachineChecks, NothingIsWrongWhereNothingIs) {
  const Box box;
  const auto checks = box.checks();
  for (const char* name : {"gpu", "host memory", "disk", "memlock", "cgroup memory", "huge pages", "pcie 0000:01:00.0",
                           "numa 0000:01:00.0"}) {
    ASSERT_TRUE(checks.contains(name)) << name;
    EXPECT_TRUE(checks.at(name).ok) << name << ": " << checks.at(name).found;
  }
  EXPECT_TRUE(checks.contains("scratch"));
  EXPECT_EQ(checks.at("gpu").found, "NVIDIA H200, driver 570.1");
}

TEST(MachineChecks, WithoutAGpuTheReasonIsGiven) {
  const MachineCheck gpu = Box().checks({0}, "").at("gpu");
  EXPECT_FALSE(gpu.ok);
  EXPECT_EQ(gpu.found, "no driver");
  EXPECT_NE(gpu.fix.find("install the NVIDIA driver"), std::string::npos) << gpu.fix;
}

TEST(MachineChecks, MemoryAndDiskSayWhatTheyHold) {
  const auto checks = Box().checks();
  EXPECT_EQ(checks.at("host memory").found, "62.5 GiB, the state of 5.59B parameters in fp32");
  EXPECT_NE(checks.at("disk").found.find("free in "), std::string::npos);
}

TEST(MachineChecks, ALimitOnLockedMemoryIsNamedUnlessTheProcessMayLockAnyway) {
  const Box box;
  box.write("proc/self/limits", "Max locked memory  8388608 8388608 bytes\n");
  box.expect_warning("memlock", "8.00 MiB", "ulimit -l unlimited");
  box.write("proc/self/status", "CapEff:\t000001ffffffffff\n");
  EXPECT_TRUE(box.checks().at("memlock").ok);
}

TEST(MachineChecks, AControlGroupBelowTheMachinesMemoryIsNamed) {
  const Box box;
  box.write("sys/fs/cgroup/memory.max", "8589934592\n");
  box.expect_warning("cgroup memory", "8.00 GiB of 62.5 GiB", "docker run --memory");
}

TEST(MachineChecks, HugePagesThatAreOffAreNamed) {
  const Box box;
  box.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  box.expect_warning("huge pages", "never", "echo madvise");
}

TEST(MachineChecks, ALinkNarrowerOrSlowerThanSlotAndCardAllowIsNamed) {
  const Box box;
  box.write_gpu("current_link_width", "8\n");
  box.expect_warning("pcie 0000:01:00.0", "x8 at 32 GT/s", "lanes");
  box.write_gpu("current_link_width", "16\n");
  box.write_gpu("current_link_speed", "8.0 GT/s PCIe\n");
  box.expect_warning("pcie 0000:01:00.0", "x16 at 8 GT/s", "idle");
  // a slot that supports no more is not a fault of the link
  box.write("sys/devices/pci0000:00/0000:00:01.0/max_link_speed", "8.0 GT/s PCIe\n");
  EXPECT_TRUE(box.checks().at("pcie 0000:01:00.0").ok);
}

TEST(MachineChecks, CpusThatAreAllOnAnotherNodeThanTheGpuAreNamed) {
  Box().expect_warning("numa 0000:01:00.0", "0 of this process's 3 CPUs", "--cpunodebind=1", {0, 1, 23});
}

TEST(MachineChecks, ADirectoryThatIsNotThereIsNamed) {
  const std::vector<MachineCheck> checks = machine_checks({.directory = "/nowhere/at/all"});
  EXPECT_EQ(checks.back().name, "scratch");
  EXPECT_FALSE(checks.back().ok);
  EXPECT_NE(checks.back().found.find("/nowhere/at/all"), std::string::npos);
  EXPECT_NE(checks.back().fix.find("--dir"), std::string::npos);
}

}  // namespace megatrain
