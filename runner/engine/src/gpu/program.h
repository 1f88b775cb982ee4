// GPU programs: the operations of a kernel's workgroups, the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chakrascope::gpu {

enum class OpKind : std::uint8_t {
    Data,     // load from all sources, reduce, and store to all destinations
    Signal,   // add to counters, usually of other ranks
    Take,     // wait until counters reach given values, then subtract these
    Await,    // wait until counters reach given values
    Sync,     // barrier of the threads of the workgroup
    Barrier,  // barrier of the workgroups of a rank: counter, and number of workgroups
    Fence,    // wait until all stores are acknowledged
    Proxy,    // a proxy moves the data; the workgroup continues
    Flush,    // wait until the proxies have moved all data
    Pause,    // sleep for a time
};

constexpr std::int32_t kNone = -1;

// A location that an operation reads or writes: the memory of a rank or, through the switch, of all ranks of
// a group.
struct Access {
    std::int32_t rank = kNone;     // index in the run; kNone for the switch
    std::int32_t group = kNone;    // number of the switch group
    double wire = 1;               // bytes moved per byte of data; above 1 with flags
    std::int32_t counter = kNone;  // of each target rank, incremented once all data is visible
};

struct CounterUse {
    std::int32_t rank = kNone;
    std::int32_t counter = kNone;
    std::int64_t value = 1;
};

struct Op {
    OpKind kind = OpKind::Sync;
    std::int32_t place = kNone;  // its number in time stamps
    std::uint64_t bytes = 0;     // bytes of data
    double ns = 0;               // Pause
    std::uint32_t sources = 0, first_source = 0;
    std::uint32_t targets = 0, first_target = 0;
    std::uint32_t uses = 0, first_use = 0;
};

struct Workgroup {
    std::uint32_t first_op = 0, last_op = 0;  // first_op up to last_op, exclusive
    std::int32_t wavefronts = 1;
};

// A GPU program: the workgroups of each rank, repeated `copies` times. A rank of the second copy does what
// the same rank of the first does, with all ranks shifted by the size of a copy (modulo `size`). If all
// copies start together on idle GPUs, these stay in step, so `Devices` can simulate the first copy only.
struct Program {
    std::string name;
    std::size_t copies = 1;
    std::vector<Op> ops;
    std::vector<Access> accesses;
    std::vector<CounterUse> uses;
    std::vector<std::vector<std::int32_t>> groups;  // ranks of each switch group, as indices of members
    std::vector<std::vector<Workgroup>> ranks;
    std::vector<std::vector<std::int64_t>> counters;  // initial values of the counters of each rank

    std::size_t size() const { return copies * ranks.size(); }
    // Return the rank whose workgroups, of the first copy, rank `member` runs.
    std::size_t pattern(std::int32_t member) const { return static_cast<std::size_t>(member) % ranks.size(); }
};

}  // namespace chakrascope::gpu
