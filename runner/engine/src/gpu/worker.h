// A worker is a workgroup running on a compute unit.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fabric.h"
#include "run.h"

namespace chakrascope::gpu {

class Devices;

// One or more wavefronts that load a batch of lines, wait, reduce, store, and take the next batch.
struct Batch final : Listener {
    Worker* worker = nullptr;
    std::uint64_t first = 0;
    std::uint32_t lines = 0;
    std::uint32_t loads_left = 0;  // lines
    bool storing = false;

    void loaded(std::uint32_t count) override;
};

// The stores of one operation to one destination.
struct Posting final : Listener {
    Worker* worker = nullptr;
    const Access* target = nullptr;
    bool complete = false;             // whether all stores of the posting have been issued
    std::uint64_t unacknowledged = 0;  // lines
    std::vector<std::pair<std::int32_t, std::uint64_t>>
        to_come;  // members with the number of lines that each will still receive

    void sent(std::uint32_t count) override;
    void delivered(std::int32_t gpu, std::uint32_t count) override;
    void acknowledged(std::uint32_t count) override;
    // Mark the posting as complete, and notify the destinations that have received all stores.
    void close();

  private:
    void tell(std::int32_t member);
    void retire();
};

class Worker {
  public:
    enum class Waits : std::uint8_t { Nothing, Counter, Barrier, Stores, Proxies, End };

    Worker(Devices& devices, Kernel& kernel, std::int32_t number, Place place);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Start the first operation.
    void start();
    // Continue after a change of the counter that the worker waits for.
    void woken();
    // Issue the requests of a batch, which the compute unit can now accept.
    void ask(Batch& batch);
    void batch_loaded(Batch& batch);
    void batch_reduced(Batch* batch);
    // Called when stores are acknowledged (`stored`), and when a proxy's transfer is done (`transferred`).
    void stored(std::uint64_t lines);
    void transferred();

    Devices& devices() { return devices_; }
    const Kernel& kernel() const { return kernel_; }
    Run& run() const { return *kernel_.run; }
    Place place() const { return place_; }
    std::int32_t number() const { return number_; }
    Waits waits() const { return waits_; }
    // Return the current operation's number in time stamps.
    std::int32_t op_place() const { return op_ < last_op_ ? op().place : kNone; }
    std::uint32_t lines_of(const Batch& batch) const;

  private:
    std::uint32_t lines_of(const Access& access, const Batch& batch) const;
    const Op& op() const { return program_.ops[op_]; }
    // Return the rank that the worker's operations call `rank`.
    std::int32_t member(std::int32_t rank) const;
    void begin_op();
    void next_op();
    void finish();
    void go_on_if_idle();
    void check();
    void signal();
    void meet();
    void move_data();
    void next_batch(Batch& batch);
    void store(Batch& batch);
    void hand_to_proxy();
    void later(double ns, void (Worker::*step)());
    void take_step() { (this->*step_)(); }
    std::uint32_t wavefronts_together() const;
    std::uint32_t batch_lines() const;

    Devices& devices_;
    Kernel& kernel_;
    const Program& program_;
    const std::int32_t number_;
    const Place place_;
    std::uint32_t op_, last_op_;
    const std::uint32_t wavefronts_;
    void (Worker::*step_)() = nullptr;
    Fs began_ = 0;
    Waits waits_ = Waits::Nothing;
    std::uint32_t use_ = 0;             // index of the counter waited for
    std::uint64_t unacknowledged_ = 0;  // lines
    std::uint32_t transfers_ = 0;       // transfers by proxies that are not done
    std::uint64_t first_line_ = 0, next_line_ = 0, lines_ = 0;
    std::uint32_t batch_lines_ = 1;
    std::uint32_t batches_ = 0;       // number of running wavefronts
    std::vector<Posting*> postings_;  // stores of the operation, by destination
};

}  // namespace chakrascope::gpu
