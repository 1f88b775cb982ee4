// A rank, which issues the ready nodes of its program to free slots.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "../collective/scheduler.h"
#include "../event_queue.h"
#include "../system/endpoint.h"
#include "moments.h"
#include "program.h"
#include "records.h"

namespace chakrascope::engine {

// Tags of messages of the workload are taken modulo this number; larger tags belong to collectives.
inline constexpr std::uint64_t kPointToPointTags = 500'000'000;

struct Cluster;

class Rank {
  public:
    Rank(Cluster& cluster, std::int32_t id, const Program& program);
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    // Issue the nodes of the program that can start when the rank begins.
    void fire(std::uint64_t = 0);
    // Complete a node whose operation has ended.
    void complete(std::uint64_t node);
    // Process the end of a collective's messages. The node completes after the library's overhead.
    void collective_ended(std::uint32_t node);

    Cluster& cluster() { return cluster_; }
    Endpoint& endpoint() { return endpoint_; }
    StreamScheduler& scheduler() { return scheduler_; }
    Moments& moments() { return moments_; }
    std::int32_t id() const { return id_; }
    const Program& program() const { return program_; }
    std::uint16_t slot(std::uint32_t node) const {
        return traced_ ? program_.slot_trace(node) : program_.slot_astra(node);
    }
    const Records& records() const { return records_; }
    // Return the records of the nodes, and remove them from the rank.
    Records take_records() { return std::move(records_); }
    bool finished() const { return finish_time_ >= 0; }
    std::int64_t finish_time() const { return finish_time_; }
    // Return the sum of the durations of computation, from which ASTRA-sim computes exposed
    // communication.
    std::uint64_t compute_sum() const { return compute_sum_; }
    std::uint64_t executed() const { return executed_; }

  private:
    // A resource that runs one node at a time, or an unlimited number of nodes.
    struct Slot {
        std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
        std::uint32_t passable = 0;  // number of running nodes that later nodes may overtake
        bool busy = false;
    };

    void end(std::uint32_t node);
    void watch_ties();
    void watch_order();
    void make_ready(std::uint32_t node);
    void scan(std::int32_t cause);
    void scan_once(std::int32_t cause);
    void finish_children(std::uint32_t node);
    void test_finished();
    void issue(std::uint32_t node, std::int32_t cause);
    // Occupy or vacate the resource slot of a node. Nodes that may be overtaken do not occupy a slot.
    void occupy(std::uint32_t node);
    void vacate(std::uint32_t node);
    bool is_passable(std::uint32_t node) const;
    void start_operation(std::uint32_t node);
    void skip(std::uint32_t node);
    void compute(std::uint32_t node);
    void replay(std::uint32_t node);
    void computed(std::uint64_t node);
    void access_memory(std::uint32_t node);
    void communicate(std::uint32_t node);
    void send(std::uint32_t node);
    void receive(std::uint32_t node);
    void message_came(std::uint64_t node);
    void collective(std::uint32_t node);
    void collective_done(std::uint64_t node);
    Time duration(std::uint32_t node) const;
    void require(std::uint32_t node, std::uint16_t attribute, const char* name) const;
    [[noreturn]] void refuse(std::uint32_t node, const std::string& problem) const;
    std::string words_of(std::uint32_t node) const;
    std::int32_t checked_peer(std::uint32_t node, std::int64_t peer) const;

    Cluster& cluster_;
    const std::int32_t id_;
    const Program& program_;
    const bool traced_;  // trace semantics: every stream is a resource, and durations are in ns
    Endpoint endpoint_;
    StreamScheduler scheduler_;
    Records records_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> fresh_;  // nodes that became ready during a scan, for the next scan
    std::uint64_t ready_count_ = 0;
    std::uint64_t taken_ = 0;
    std::uint64_t executed_ = 0;
    std::uint64_t compute_sum_ = 0;
    std::int64_t finish_time_ = -1;
    std::int32_t last_skipped_ = -1;
    bool scan_again_ = false;
    Time last_end_ = ~Time{0};
    Moments moments_;  // order of events, only recorded if phases are computed as a whole
};

// The duration of a node by ASTRA-sim's roofline model, with its operational intensity and performance.
struct Roofline {
    Time duration = 0;
    double intensity = 0;    // operations per byte
    double performance = 0;  // operations per second
    static Roofline of(const Facts& facts, const Config& config);
};

}  // namespace chakrascope::engine
