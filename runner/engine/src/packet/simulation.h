// Simulates every packet of every message on a fabric.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../errors.h"
#include "../fabric/report.h"
#include "../fabric/routes.h"
#include "host.h"
#include "switch.h"
#include "world.h"

namespace chakrascope::packet {

struct Completion {
    std::uint64_t message;
    Ticks time;
};

class Simulation final : public Router {
  public:
    Simulation(const engine::Fabric& fabric, const Settings& settings);
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    // Send a message between two nodes at a time that has not passed. Raises ConfigError if there is no path,
    // and BackendError for an invalid message.
    void send(std::uint64_t message, std::int32_t source, std::int32_t destination, std::uint64_t bytes,
              Ticks time);
    // Advance to the end of the time step in which the next message completes, but not past the limit.
    // `keep_going` is called regularly, and may return false to end the run.
    const std::vector<Completion>& run(Ticks limit, const std::function<bool(Ticks)>& keep_going);

    // Return whether a queue with packet trains came close to the threshold for ECN marks. Single packets
    // might have been marked differently, so the caller repeats the run without trains.
    bool trains_misled() const { return world_.trains_misled; }

    // Return the outgoing port of a packet at a node, over links that are up.
    Port* way_out(std::int32_t node, const Packet& packet) override;

    // Return the traffic of links so far; nodes are numbered as in the fabric's description.
    engine::FabricReport report() const;

  private:
    void add_intervals(engine::FabricReport& report, const Port& port, Ticks width) const;
    void connect(const engine::Fabric& fabric);
    Port& add_port(std::int32_t node);
    void size_for_links();
    void find_paths(Flow& flow);
    std::vector<Port*> path(std::int32_t source, std::int32_t destination, std::uint32_t ports);
    void wait_for_change();
    void change_links();
    bool change_link(const engine::LinkChange& change, engine::ChangeRecord& record);
    void reroute(engine::ChangeRecord& record);
    void take_other_path(Flow& flow, const std::vector<Port*>& before);
    bool awaited(const Flow& flow) const;
    engine::ConfigError no_way(const Flow& flow) const;
    const engine::PathMeasure& measure(std::int32_t source, std::int32_t destination);
    Flow& keep(std::unique_ptr<Flow> flow);
    void limit_trains();
    void begin(Flow* flow);
    std::uint64_t on_longest_link(const Flow& flow) const;
    std::uint32_t longest_train(const Flow& flow) const;
    void begin_late(Flow* flow);
    void begin_settling();
    void end_instant();
    void forget_done();
    void complete(const Flow& flow);

    World world_;
    engine::Routes routes_;
    engine::SourcePorts source_ports_;
    Host::Reports reports_;
    std::vector<std::unique_ptr<Host>> hosts_;       // hosts by node, null for switches
    std::vector<std::unique_ptr<Switch>> switches_;  // switches by node, null for hosts
    std::vector<Port*> ports_;                       // ports by link direction
    std::unordered_map<std::uint64_t, engine::PathMeasure> measured_;
    engine::PathMeasure largest_;
    const std::vector<std::int32_t> ranks_;  // by node
    const std::vector<engine::LinkChange> changes_;
    std::size_t next_change_ = 0;
    std::uint64_t packets_ = 0;  // packets of all messages so far
    std::vector<engine::ChangeRecord> changed_;
    std::vector<std::unique_ptr<Flow>> flows_;
    std::vector<std::size_t> free_;
    std::vector<Flow*> done_;  // acknowledged messages that may still be referenced
    Timer limit_;
    Timer look_;
    std::uint64_t events_before_ = 0;
    std::vector<Completion> completions_;
};

}  // namespace chakrascope::packet
