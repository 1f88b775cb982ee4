// Max-min fair rates of flows over directed links. Data shares a link with acknowledgements of data in the
// other direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "clusters.h"

namespace chakrascope::engine::flow {

// One direction of a link: its capacity in bytes of full data packets per ps, and the load of
// acknowledgements per byte of data in the other direction.
struct Line {
    double capacity = 0;
    double answer_share = 0;
    bool leaves_host = false;
};

// Solves for the rates of bundles. A bundle contains all flows with the same forward and return links, which
// have the same rate.
class Sharing {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    explicit Sharing(const std::vector<Line>& lines);

    // Add a bundle; bundles are numbered from 0. The path of a bundle can change while the bundle has no
    // flows.
    void add();
    void set_path(std::uint32_t bundle, std::span<const std::uint32_t> forward,
                  std::span<const std::uint32_t> back, const Window& window);
    // Return the queues at links. Queues limit flows whose acknowledgements wait in the queue; the flows of a
    // bundle wait at one link or at their sender.
    Clusters& clusters() { return clusters_; }
    const Clusters& clusters() const { return clusters_; }
    void set_queue(std::uint32_t bundle, std::uint32_t link);
    void join(std::uint32_t bundle) { change(bundle, 1); }
    void leave(std::uint32_t bundle) { change(bundle, -1); }

    // Update the rates after flows have joined or left, and return the bundles whose rate changed.
    const std::vector<std::uint32_t>& solve();

    // Return the number of bundles that have flows.
    std::size_t active() const { return active_.size(); }
    std::size_t size() const { return bundles_.size(); }
    double rate(std::uint32_t bundle) const { return bundles_[bundle].rate; }
    std::int32_t flows(std::uint32_t bundle) const { return bundles_[bundle].flows; }
    // Return the link that limits the bundle, or kNone if the bundle's own limit is lower.
    std::uint32_t binding(std::uint32_t bundle) const { return bundles_[bundle].binding; }
    std::span<const std::uint32_t> forward(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first, bundles_[bundle].forward};
    }
    std::span<const std::uint32_t> back(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first + bundles_[bundle].forward, bundles_[bundle].back};
    }
    // Set the capacity and answer share of a link that has no flows.
    void set_line(std::uint32_t link, const Line& line);
    const Line& line(std::uint32_t link) const { return links_[link].line; }
    // Return the bundles that have flows on the link.
    const std::vector<std::uint32_t>& users(std::uint32_t link) const { return links_[link].users; }

  private:
    static constexpr std::size_t kNear = 4;
    // The data of a bundle that the solver needs, in one cache line.
    struct alignas(64) Bundle {
        double most = 0;  // rate limit by its slowest link and its window
        double rate = 0;
        std::uint32_t near[kNear] = {};  // a copy of the bundle's links, if there are at most kNear
        std::uint32_t first = 0;         // the bundle's links in hops_: forward, then return links
        std::uint16_t forward = 0;
        std::uint16_t back = 0;
        std::int32_t flows = 0;
        std::uint32_t binding = kNone;
        std::uint32_t gathered = 0;  // the pass in which the bundle was visited
        bool touched = false;
    };
    // The rest of a bundle, rarely used.
    struct Limits {
        Window window;
        double line = 0;  // rate of the bundle's slowest link
        std::uint32_t queue = kNone;
        std::uint32_t place = 0;  // index in active_
        std::uint32_t room = 0;   // space for the bundle's links in hops_
        bool affected = false;
    };
    struct Answers {
        double lag = 0;      // lag of acknowledgements behind data, as a fraction of the flow at rate 1
        double counted = 0;  // rate for which the load of return links was computed
    };
    struct Link {
        Line line;
        std::vector<std::uint32_t> users;
        std::vector<std::uint32_t> answered;  // bundles with acknowledgements that return by this link
        double answers = 0;                   // load of acknowledgements, bytes per ps
        double counted = 0;                   // load of acknowledgements in the last solution
        double demand = 0;                    // demand if only the bundles' own limits applied
        std::int32_t flows = 0;
        std::int32_t answerers = 0;
        bool binds = false;
        bool dirty = false;
    };
    // A link in the solver.
    struct Filling {
        double left = 0;
        std::int32_t sharers = 0;
        std::uint32_t pass = 0;  // number of the last pass that contained the link
    };
    struct Level {
        double rate;
        std::uint32_t number;  // index of the link or the bundle
        bool operator<(const Level& other) const {
            return rate != other.rate ? rate > other.rate : number > other.number;
        }
    };

    void change(std::uint32_t bundle, int by);
    void enter(std::uint32_t bundle);
    void exit(std::uint32_t bundle);
    bool slack(const Link& link) const {
        return link.demand <= (link.line.capacity - link.answers) * (1 + 1e-9);
    }
    void mark(std::uint32_t link);
    void gather();
    void gather_all();
    void gather_link(std::uint32_t link);
    void gather_bundle(std::uint32_t bundle);
    bool reaches(std::uint32_t link) const {
        return filling_[link].pass != pass_ && (links_[link].binds || !slack(links_[link]));
    }
    void note_queues();
    void affect(std::uint32_t bundle);
    void touch(std::uint32_t bundle);
    std::vector<std::uint32_t>& list(std::uint32_t hop, const Bundle& bundle);
    void limit(std::uint32_t bundle);
    double level_of(std::uint32_t link) const;
    void prepare();
    void fill();
    bool lowest(Level& level);
    void fill_link(std::uint32_t link);
    void find_caps();
    void fill_cap();
    void freeze(std::uint32_t bundle, double rate, std::uint32_t binding);
    void publish();
    void tell_answers(std::uint32_t bundle, double tolerance, double same);
    void sort_changed();

    std::vector<Link> links_;
    std::vector<Filling> filling_;  // solver state of each link
    std::vector<Bundle> bundles_;
    std::vector<Limits> limits_;  // of each bundle
    std::vector<Answers> answers_;
    std::vector<std::uint32_t> fixed_;  // the pass that fixed the rate of each bundle
    std::vector<std::uint32_t> hops_;
    std::vector<std::uint32_t> slots_;  // index in the link's list of users, parallel to hops_
    std::vector<std::uint32_t> active_;
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint32_t> affected_;  // bundles affected by changed queues
    std::vector<std::uint32_t> dirty_;
    Clusters clusters_;

    // The state of the solver.
    std::uint32_t pass_ = 0;
    int whole_passes_ = 0;  // number of next solutions without a search for independent parts
    bool whole_ = false;
    double least_cap_ = 0;  // no bundle has a lower limit
    double part_cap_ = 0;
    bool caps_known_ = false;
    std::size_t unfixed_ = 0;
    std::vector<std::uint32_t> part_bundles_;  // bundles of the current part; unused if whole_
    std::vector<std::uint32_t> part_links_;
    std::vector<Level> levels_;
    std::vector<Level> caps_;
    std::vector<std::uint8_t> marks_;    // for each bundle, whether its rate changed
    std::vector<std::uint32_t> moved_;   // bundles whose rate changed in this pass; unused if whole_
    std::vector<std::uint32_t> joined_;  // bundles with flows that joined or left before this pass
    std::vector<std::uint32_t> changed_;
};

}  // namespace chakrascope::engine::flow
