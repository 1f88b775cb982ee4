// Max-min fair rates of flows over directed links, whose capacity is shared with the answers to the
// other direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "clusters.h"

namespace chakrascope::engine::flow {

// A direction of a link: bytes of full data packets per ps, and the answer load per byte of data in
// the other direction.
struct Line {
    double capacity = 0;
    double answer_share = 0;
    bool leaves_host = false;
};

// Flows with the same forward and return links share one rate, and thus one variable of the
// equations.
class Sharing {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    explicit Sharing(const std::vector<Line>& lines);

    // Bundles are numbered from 0. The path of a bundle without flows can be changed.
    void add();
    void set_path(std::uint32_t bundle, std::span<const std::uint32_t> forward,
                  std::span<const std::uint32_t> back, const Window& window);
    // The queue at links, which limits the flows whose acknowledgements pass them. Flows of a
    // bundle wait at one link, or at their sender.
    Clusters& clusters() { return clusters_; }
    const Clusters& clusters() const { return clusters_; }
    void set_queue(std::uint32_t bundle, std::uint32_t link);
    void join(std::uint32_t bundle) { change(bundle, 1); }
    void leave(std::uint32_t bundle) { change(bundle, -1); }

    // Update the rates after flows joined and left; returns the bundles whose rate changed.
    const std::vector<std::uint32_t>& solve();

    // Bundles with flows.
    std::size_t active() const { return active_.size(); }
    std::size_t size() const { return bundles_.size(); }
    double rate(std::uint32_t bundle) const { return bundles_[bundle].rate; }
    std::int32_t flows(std::uint32_t bundle) const { return bundles_[bundle].flows; }
    // The link that limits the bundle; none if its own limit does.
    std::uint32_t binding(std::uint32_t bundle) const { return bundles_[bundle].binding; }
    std::span<const std::uint32_t> forward(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first, bundles_[bundle].forward};
    }
    std::span<const std::uint32_t> back(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first + bundles_[bundle].forward, bundles_[bundle].back};
    }
    // There must be no flows on the link.
    void set_line(std::uint32_t link, const Line& line);
    const Line& line(std::uint32_t link) const { return links_[link].line; }
    // Bundles with flows on the link.
    const std::vector<std::uint32_t>& users(std::uint32_t link) const { return links_[link].users; }

  private:
    static constexpr std::size_t kNear = 4;
    // All data that solving needs fits in one cache line.
    struct alignas(64) Bundle {
        double most = 0;  // limit by its slowest link and its window
        double rate = 0;
        std::uint32_t near[kNear] = {};  // the links in this array, if they fit
        std::uint32_t first = 0;         // all its links in hops_: forward, then return
        std::uint16_t forward = 0;
        std::uint16_t back = 0;
        std::int32_t flows = 0;
        std::uint32_t binding = kNone;
        std::uint32_t gathered = 0;  // the pass in which it was visited
        bool touched = false;
    };
    // Rarely used data.
    struct Limits {
        Window window;
        double line = 0;  // of its slowest link
        std::uint32_t queue = kNone;
        std::uint32_t place = 0;  // in active_
        std::uint32_t room = 0;   // space for its links in hops_
        bool affected = false;
    };
    struct Answers {
        double lag = 0;      // lag of answers behind data, as a share of the flow at rate 1
        double counted = 0;  // the rate of its flows that currently loads the return links (ACKs)
    };
    struct Link {
        Line line;
        std::vector<std::uint32_t> users;
        std::vector<std::uint32_t> answered;  // bundles with flows whose answers return by it
        double answers = 0;                   // load of the answers, bytes per ps
        double counted = 0;                   // the answer load of the last solution
        double demand = 0;                    // demand of all flows if only their own limits applied
        std::int32_t flows = 0;
        std::int32_t answerers = 0;
        bool binds = false;
        bool dirty = false;
    };
    // State of a link while solving.
    struct Filling {
        double left = 0;
        std::int32_t sharers = 0;
        std::uint32_t pass = 0;  // that contains it
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
    std::vector<Filling> filling_;  // of each link
    std::vector<Bundle> bundles_;
    std::vector<Limits> limits_;  // of each bundle
    std::vector<Answers> answers_;
    std::vector<std::uint32_t> fixed_;  // the pass that did
    std::vector<std::uint32_t> hops_;
    std::vector<std::uint32_t> slots_;  // index in users of the link, parallel to hops_
    std::vector<std::uint32_t> active_;
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint32_t> affected_;  // changed by queues
    std::vector<std::uint32_t> dirty_;
    Clusters clusters_;

    // State of the solver.
    std::uint32_t pass_ = 0;
    int whole_passes_ = 0;  // remaining solutions without a search for independent parts
    bool whole_ = false;
    double least_cap_ = 0;  // bounds of the bundles' own limits: of all bundles, and of a part
    double part_cap_ = 0;
    bool caps_known_ = false;
    std::size_t unfixed_ = 0;
    std::vector<std::uint32_t> part_bundles_;  // unless whole_
    std::vector<std::uint32_t> part_links_;
    std::vector<Level> levels_;
    std::vector<Level> caps_;
    std::vector<std::uint8_t> marks_;    // for each bundle, whether its rate changed
    std::vector<std::uint32_t> moved_;   // bundles whose rate changed in this pass; unless whole_
    std::vector<std::uint32_t> joined_;  // bundles that flows left before this pass
    std::vector<std::uint32_t> changed_;
};

}  // namespace chakrascope::engine::flow
