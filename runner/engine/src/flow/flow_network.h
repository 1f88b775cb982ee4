// The fluid model: every message flows at a max-min fair rate. Packets are only considered for header bytes,
// the load of acknowledgements, and the times of the first and last packet on the path.
#pragma once

#include <cstdint>
#include <limits>
#include <queue>
#include <string>
#include <vector>

#include "../errors.h"
#include "../fabric/report.h"
#include "../fabric/routes.h"
#include "../network/network.h"
#include "history.h"
#include "id_cache.h"
#include "pacing.h"
#include "sharing.h"
#include "timing.h"
#include "validity.h"

namespace chakrascope::engine::flow {

inline constexpr double kPsPerNs = 1000;

class FlowNetwork final : public Network {
  public:
    FlowNetwork(const Config& config, EventQueue& events, Mailbox& mailbox);

    void carry(std::uint32_t message) override;
    const std::vector<LinkUse>& links() const override;
    const FabricReport* report() const override;

  private:
    enum class Stage : std::uint8_t { kGone, kInTransit, kFlowing, kUnrouted };
    struct Flow {
        std::uint32_t message = 0;
        std::uint32_t bundle = 0;
        std::uint16_t port = 0;
        Stage stage = Stage::kInTransit;
        bool begun = false;     // whether the flow has begun
        std::uint32_t hop = 0;  // index (into the path) of the flow's most contended link
        bool waited = false;    // whether the flow has waited in the queue of that link
        Origin origin;
        std::int32_t source = 0;
        std::int32_t destination = 0;
        std::int64_t start_ns = 0;
        std::uint64_t bytes = 0;
        Packets packets;
        std::uint64_t counted = 0;  // packets already counted in the traffic of links
        double wire = 0;            // bytes on the wire, including headers, for `amount` of work
        double recorded = 0;        // bytes on the wire that were already added to the history
        double amount = 0;          // remaining work in bytes of full packets
        double joined = 0;          // ps
        double ahead = 0;  // time (ps) by which the flow's last packet leaves earlier than in the fluid model
        std::uint64_t order = 0;
        std::int32_t crowded = 0;  // number of links after the first link that many other flows share
    };
    // A flow that is removed from its links while links change.
    struct Stopped {
        std::uint32_t flow = 0;
        std::vector<std::uint32_t> path;
        double rate = 0;
        double flying = 0;  // bytes sent before the sender notices the loss
        bool has_way = false;
    };
    struct Reach {
        double time;
        std::uint64_t order;
        std::uint32_t flow;
        bool operator<(const Reach& other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    struct Standing {
        double time = -1;
        double bytes = 0;
    };

    bool advance(std::int64_t limit_ns);
    void announce();
    void step(double time);
    void reach(double time);
    void end(double time);
    void solve(double time);
    double together() const;
    double patience(const Flow& flow) const;

    std::int32_t host(std::int32_t rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    bool find_path(const Flow& flow);
    std::uint32_t bundle_of(const Flow& flow);
    void take_bundle(Flow& flow);
    void leave_bundle(const Flow& flow);
    Window window_of(std::int32_t source, std::int32_t destination, std::uint64_t bytes);
    void set_bundle(std::uint32_t bundle, Window window);
    void find_contended(Flow& flow) const;
    double amount(const Flow& flow) const;
    double standing(std::uint32_t link, double time);
    double standing_of(std::uint32_t bundle, std::uint32_t link, double time) const;
    void take_turns(std::size_t first);
    Checked checked(const Flow& flow) const;
    Stake stake(const Flow& flow) const;
    void join(std::uint32_t flow);
    void finish(std::uint32_t flow, double time);
    void use_links(const Flow& flow, std::uint64_t packets);
    void use_queue(const Flow& flow, double time);
    void record(double time);
    void tell_history(Flow& flow, double bytes);
    std::uint32_t keep(const Flow& flow);

    double next_change() const;
    void change_links(double time);
    Stopped stop(std::uint32_t flow, double time);
    void set_rates(Ticks time);
    void find_ways(std::vector<Stopped>& stopped, ChangeRecord& record);
    void go_on(const std::vector<Stopped>& stopped, double time);
    ConfigError no_way(const Flow& flow) const;

    EventQueue& events_;
    Mailbox& mailbox_;
    const packet::Settings& settings_;
    const double shake_;  // packets
    const std::vector<std::int32_t>& hosts_;
    const std::vector<LinkChange>& changes_;
    std::size_t next_change_;
    Routes routes_;
    SourcePorts ports_;
    Timing timing_;
    Sharing sharing_;
    PathMeasure longest_;

    std::vector<Flow> flows_;
    std::vector<std::uint32_t> free_;
    std::uint64_t carried_ = 0;
    std::vector<std::uint32_t> announced_;
    std::vector<std::int32_t> expected_;  // flows in flight over each link
    std::priority_queue<Reach> reaches_;
    std::vector<Window> windows_;  // window of each bundle
    Pacing pacing_;
    std::uint32_t era_ = 0;            // number of link changes so far
    std::vector<std::uint32_t> eras_;  // link changes for which each bundle's path and window are valid
    IdCache bundle_ids_;               // bundles by the hash of their links
    std::vector<std::uint32_t> path_;  // scratch space for a lookup of paths
    std::size_t forward_ = 0;
    std::vector<Standing> standing_;
    std::vector<std::uint32_t> arrived_;  // new flows for which no rate has been computed
    double due_ = Ends::kNever;           // next time to compute rates for added and removed flows
    double ended_ = Ends::kNever;         // time of the first removal since rates were computed
    std::vector<std::uint32_t> turns_;    // round-robin turns of flows that join a link at the same time
    std::uint64_t steps_ = 0;
    std::uint64_t solutions_ = 0;
    double added_ = 0;  // the earliest completion added to the event queue in this call of `advance`

    const bool recording_;
    History history_;
    mutable std::vector<LinkUse> uses_;
    Validity validity_;
    mutable FabricReport report_;
};

}  // namespace chakrascope::engine::flow
